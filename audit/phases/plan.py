"""The plan: which phases there are, which settings each depends on, and running them in order.

phases.json says what each phase ran with and how long it took. A finished phase whose settings are
unchanged need not run again; a phase that would read another's outdated output is refused.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.record import SEAL, TOKEN
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.case.schemas import PhaseEntry as Entry
from fedaudit.audit.settings.config import SIMULATED, Config
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import hide_unused
from fedaudit.fl.runtime.sharing import sharing

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Phase:
    """One phase: the config keys it depends on."""

    name: str
    keys: tuple[str, ...]
    module: str = ""  # of audit/phases/, where it is not the name

    def settings(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a resolved config."""
        found = {k: resolved[k] for k in self.keys if k in resolved}
        if self.name == "score":  # of the report, what the result itself may hold
            found["show"] = resolved["report"]["show"]
        return found


PHASES = (
    Phase("simulate", ("seed", *SIMULATED, "record", "evaluate_every")),
    Phase("attack", ("attacks", "budget", "replay")),
    Phase("account", ("accountants", "delta", "noise_audit")),
    Phase("matrix", ("matrix", "absence")),
    Phase("score", ("policy", "prior", "title", "system", "claims", "variants")),
    Phase("report", ("report", "sections")),
)
FIXED = PHASES[0].keys  # what a run folder can never change
IMPORT = Phase("import", ("seed", "case", "subject", "protections"), "import_")
_OF_RECORDED = (IMPORT, *(p for p in PHASES if p.name != "simulate"))


def phases(case: str) -> tuple[Phase, ...]:
    """Those of a simulated case, or of a recorded one, in their order."""
    return _OF_RECORDED if case == "recorded" else PHASES


def phase(name: str) -> Phase:
    return next(p for p in (*PHASES, IMPORT) if p.name == name)


def _reads(name: str, resolved: Mapping[str, Any]) -> tuple[str, ...]:
    return chain.reads(name, "import" if resolved.get("case") == "recorded" else "simulate")


@sharing()
def execute(
    run: RunDir,
    config: Config,
    names: Sequence[str],
    progress: Progress,
    *,
    skip_finished: bool,
    workers: int | None = None,
) -> None:
    """Run phases in order, in a locked folder, with the config kept beside the results.

    `workers` stands in for the config's number of processes, here only: no result depends on it.
    """
    hide_unused(config.device)
    with run.work():
        resolved = run.adopt(config, phases(config.case)[0].keys)
        if workers is not None:
            config = config.model_copy(update={"workers": workers})
        for what, skip in _list_steps(names, resolved, skip_finished):
            record, settings = read_phases(run.path), what.settings(resolved)
            _check_inputs(run.path, record, resolved, what.name)
            links, terms = chain.read_chain(run.path), chain.digest_terms(config, what.name)
            is_done = skip and _is_current(record, resolved, what) and chain.current(links, what.name, terms)
            # A verdict that is not made now is derived and compared: what is reported follows from the evidence
            if what.name == "score" and (is_done or "score" not in names):
                _check_inputs(run.path, record, resolved, "report")
                chain.verify(run.path, links, ("score",))
                importlib.import_module("fedaudit.audit.phases.score").Scoring(run, config).confirm()
            # Nothing to do: a config without a matrix has no line of one
            report = progress if any(settings.values()) else _silent
            if is_done:
                report(what.name, 1, 1)
                continue
            chain.begin(run.path, config, what.name, settings)
            started = time.perf_counter()
            _begin(run.path, record, what.name, settings)
            importlib.import_module(f"fedaudit.audit.phases.{what.module or what.name}").run(run, config, report)
            chain.end(run.path, what.name)
            record[what.name]["seconds"] = round(time.perf_counter() - started, 3)
            run.write_json(run.phases, record)


def _list_steps(
    names: Iterable[str], resolved: Mapping[str, Any], skip_finished: bool
) -> Iterator[tuple[Phase, bool]]:
    """Phases in order, each with whether it is skipped where it is finished."""
    for name in names:
        for needed in map(phase, _reads(name, resolved)):
            if not any(needed.settings(resolved).values()):  # there is nothing to wait for
                yield needed, True
        if name == "report" and "score" not in names:  # whoever asks for reports alone gets no others' sentences
            yield phase("score"), False
        yield phase(name), skip_finished


def _begin(folder: Path, record: dict[str, Any], name: str, settings: Mapping[str, Any]) -> None:
    """Keep that a phase began, and drop what was about what it replaces."""
    run = RunDir(folder)
    for stale in (SEAL, TOKEN):
        durable.remove(folder / stale)
    for later in chain.downstream(name):
        record.pop(later, None)
    # A simulation that was killed and continued counts from its first start
    first = record[name]["started"] if name in record and name == "simulate" else _now()
    record[name] = {"started": first, "seconds": None, "settings": settings}
    run.write_json(run.phases, record)
    if name in ("simulate", "import"):
        from fedaudit.audit.case.environment import environment

        run.write_json(run.environment, environment())


def _silent(phase: str, done: int, total: int) -> None:
    pass


def _check_inputs(folder: Path, record: Mapping[str, Any], resolved: Mapping[str, Any], what: str) -> None:
    """Refuse to read what is missing, unfinished or was made with other settings."""
    for name in _reads(what, resolved):
        entry = record.get(name)
        if entry is None or entry["seconds"] is None:
            raise UserError(
                f"{what} needs a finished {name} phase in {folder}",
                hint=f"run `fedaudit {name}` first, or `fedaudit run`",
            )
        now = phase(name).settings(resolved)
        if found := difference(entry["settings"], now):
            raise UserError(
                f"{folder}: {name} ran with {found.key}: {found.left!r}, the config says {found.right!r}",
                hint=f"run `fedaudit {name}` again first",
            )
        chain.same_settings(folder, chain.read_chain(folder), name, now)


def _is_current(record: Mapping[str, Any], resolved: Mapping[str, Any], what: Phase) -> bool:
    """Whether a phase went to its end with these settings."""
    entry = record.get(what.name)
    if entry is None or entry["seconds"] is None:
        return False
    return bool(entry["settings"] == what.settings(resolved))


def is_complete(folder: Path, resolved: Mapping[str, Any], terms: Mapping[str, dict[str, str]]) -> bool:
    """Whether nothing is left to do of these phases; `terms`: name -> what it reads beside the folder."""
    record, links = read_phases(folder), chain.read_chain(folder)
    return all(_is_current(record, resolved, phase(n)) and chain.current(links, n, t) for n, t in terms.items())


def is_audited_run(folder: Path, resolved: Mapping[str, Any]) -> bool:
    """Whether the folder holds an audit of what these settings simulate, attack and account for."""
    record, wanted = read_phases(folder), phases(resolved.get("case", ""))
    if any((record.get(p.name) or {}).get("seconds") is None for p in wanted if p.name != "report"):
        return False
    return all(record[name]["settings"] == phase(name).settings(resolved) for name in _reads("score", resolved))


def read_phases(folder: Path) -> dict[str, Any]:
    """phases.json: phase -> {started (ISO 8601, UTC), seconds (None: unfinished), settings}."""
    run = RunDir(folder)
    if not run.phases.exists():
        return {}
    record = run.read(run.phases, dict[str, Entry])
    if strange := sorted(record.keys() - {p.name for p in (*PHASES, IMPORT)}):
        raise UserError(
            f"{run.phases} is damaged: there is no phase {strange[0]!r}",
            hint="delete it and run the phases again",
        )
    if record and not record.keys() & {PHASES[0].name, IMPORT.name}:
        raise UserError(
            f"{run.phases} is damaged: it does not say what all other phases began with",
            hint="restore it, or run the phases again",
        )
    return {name: entry.model_dump() for name, entry in record.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
