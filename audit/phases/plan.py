"""The plan: which phases there are, which settings each depends on, and running them in order.

phases.json says what each phase ran with and how long it took. A finished phase whose settings are
unchanged need not run again; a phase that would read another's outdated output is refused.
"""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.record import SEAL, TOKEN
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.case.schemas import PhaseEntry as Entry
from fedaudit.audit.settings.config import SIMULATED, Config, RecordedConfig
from fedaudit.audit.settings.resolve import resolve
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

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


def phases(config: Config) -> tuple[Phase, ...]:
    """Those of its case, in their order."""
    return _OF_RECORDED if isinstance(config, RecordedConfig) else PHASES


def of_case(case: str) -> tuple[Phase, ...]:
    """The phases of a simulated case, or of a recorded one."""
    return _OF_RECORDED if case == "recorded" else PHASES


def phase(name: str) -> Phase:
    return next(p for p in (*PHASES, IMPORT) if p.name == name)


def _reads(name: str, resolved: Mapping[str, Any]) -> tuple[str, ...]:
    return chain.reads(name, "import" if resolved.get("case") == "recorded" else "simulate")


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
    with run.lock():
        resolved = run.adopt(config, phases(config)[0].keys)
        used = config if workers is None else config.model_copy(update={"workers": workers})
        for name in names:
            for needed in _reads(name, resolved):  # a phase whose settings are all empty has nothing to wait for
                if not any(phase(needed).settings(resolved).values()):
                    _execute(run, used, resolved, phase(needed), progress, True)
            _execute(run, used, resolved, phase(name), progress, skip_finished, "score" in names)


def _execute(
    run: RunDir,
    config: Config,
    resolved: dict[str, Any],
    what: Phase,
    progress: Progress,
    skip_finished: bool,
    scored: bool = True,
) -> None:
    """One phase; `scored`: its verdict was made or confirmed by this very command, or it has none."""
    record = read_phases(run)
    _check_inputs(run, record, resolved, what)
    settings = what.settings(resolved)
    entry = record.get(what.name)
    if what.name == "report" and not scored:
        confirm_verdict(run, config)
    if not any(settings.values()):  # nothing to do: a config without a matrix has no line of one
        progress = _silent
    if (
        skip_finished
        and _is_current(record, resolved, what)
        and chain.current(chain.read_chain(run.path), what.name, chain.digest_terms(config, what.name))
    ):
        if what.name == "score":
            confirm_verdict(run, config)
        progress(what.name, 1, 1)
        return
    chain.begin(run.path, config, what.name, settings)
    for stale in (SEAL, TOKEN):  # they were about what is now replaced
        durable.remove(run.path / stale)
    for stale in chain.downstream(what.name):
        record.pop(stale, None)
    started = time.perf_counter()
    # A simulation that was killed and continued counts from its first start
    first = entry["started"] if entry and what.name == "simulate" else _now()
    record[what.name] = {"started": first, "seconds": None, "settings": settings}
    run.write_json(run.phases, record)
    if what.name in ("simulate", "import"):
        from fedaudit.audit.case.environment import environment

        run.write_json(run.environment, environment())
    importlib.import_module(f"fedaudit.audit.phases.{what.module or what.name}").run(run, config, progress)
    chain.end(run.path, what.name)
    record[what.name]["seconds"] = round(time.perf_counter() - started, 3)
    run.write_json(run.phases, record)


def confirm_verdict(run: RunDir, config: Config) -> None:
    """A verdict that is not made now is derived and compared: what is reported follows from the evidence."""
    chain.verify(run.path, chain.read_chain(run.path), ("score",))
    importlib.import_module("fedaudit.audit.phases.score").confirm(run, config)


def _silent(phase: str, done: int, total: int) -> None:
    pass


def _check_inputs(run: RunDir, record: dict[str, Any], resolved: dict[str, Any], what: Phase) -> None:
    """Refuse to read what is missing, unfinished or was made with other settings."""
    for name in _reads(what.name, resolved):
        entry, needed = record.get(name), phase(name)
        if entry is None or entry["seconds"] is None:
            raise UserError(
                f"{what.name} needs a finished {name} phase in {run.path}",
                hint=f"run `fedaudit {name}` first, or `fedaudit run`",
            )
        now = needed.settings(resolved)
        if found := difference(entry["settings"], now):
            raise UserError(
                f"{run.path}: {name} ran with {found.key}: {found.left!r}, the config says {found.right!r}",
                hint=f"run `fedaudit {name}` again first",
            )
        chain.same_settings(run.path, chain.read_chain(run.path), name, now)


def _is_current(record: dict[str, Any], resolved: dict[str, Any], what: Phase) -> bool:
    """Whether a phase went to its end with these settings."""
    entry = record.get(what.name)
    if entry is None or entry["seconds"] is None:
        return False
    return bool(entry["settings"] == what.settings(resolved))


def is_complete(run: RunDir, config: Config, names: Sequence[str]) -> bool:
    """Whether nothing is left to do of these phases."""
    resolved, record, links = resolve(config), read_phases(run), chain.read_chain(run.path)
    return all(
        _is_current(record, resolved, phase(n)) and chain.current(links, n, chain.digest_terms(config, n))
        for n in names
    )


def is_audited_run(run: RunDir, config: Config) -> bool:
    """Whether the folder holds an audit of what these settings simulate, attack and account for."""
    resolved, record = resolve(config), read_phases(run)
    if any((record.get(p.name) or {}).get("seconds") is None for p in phases(config) if p.name != "report"):
        return False
    return all(record[name]["settings"] == phase(name).settings(resolved) for name in _reads("score", resolved))


def read_phases(run: RunDir) -> dict[str, Any]:
    """phases.json: phase -> {started (ISO 8601, UTC), seconds (None: unfinished), settings}."""
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
