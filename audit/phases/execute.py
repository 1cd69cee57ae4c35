"""Phases run in order, in a locked folder, with the config kept beside the results.

A finished phase whose settings are unchanged need not run again; a phase that would read another's outdated
output is refused.
"""

import importlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.record import SEAL, TOKEN
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.evidence.phase import Phase, Progress, find_needed, is_current, phase, phases, read_phases
from fedaudit.audit.phases.score import Scoring
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import hide_unused
from fedaudit.fl.runtime.sharing import sharing

COMPUTING = ("simulate", "attack", "matrix")  # phases that networks run in


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
            is_done = skip and is_current(record, resolved, what) and chain.current(links, what.name, terms)
            is_done = is_done and not chain.find_other_code(links, what.name, config.list_plugins())
            # A verdict that is not made now is derived and compared: what is reported follows from the evidence
            if what.name == "score" and (is_done or "score" not in names):
                _check_inputs(run.path, record, resolved, "report")
                chain.verify(run.path, links, ("score",))
                Scoring(run, config).confirm()
            # Nothing to do: a config without a matrix has no line of one
            report = progress if any(settings.values()) else _silent
            if is_done:
                report(what.name, 1, 1)
                continue
            chain.begin(run.path, config, what.name, settings)
            started = time.perf_counter()
            if what.name in COMPUTING and config.device == "auto":
                from fedaudit.audit.phases.device import DeviceChoice

                choice = DeviceChoice(run, config)
                settled = choice.settle()  # before what was kept is dropped
                _begin(run.path, record, what.name, settings)
                config = choice.keep(settled)
            else:
                _begin(run.path, record, what.name, settings)
            module = what.module or f"phases.{what.name}"
            importlib.import_module(f"fedaudit.audit.{module}").run(run, config, report)
            chain.end(run.path, what.name)
            record[what.name]["seconds"] = round(time.perf_counter() - started, 3)
            run.write_json(run.phases, record)


def _list_steps(
    names: Iterable[str], resolved: Mapping[str, Any], skip_finished: bool
) -> Iterator[tuple[Phase, bool]]:
    """Phases in order, each with whether it is skipped where it is finished."""
    for name in names:
        for needed in map(phase, find_needed(name, resolved)):
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
    for name in find_needed(what, resolved):
        entry = record.get(name)
        if entry is None or entry["seconds"] is None:
            raise UserError(
                f"{what} needs a finished {name} phase in {folder}",
                hint=f"`fedaudit run RUN --phase {name}` runs it, and without --phase all that is left",
            )
        now = phase(name).settings(resolved)
        if found := difference(entry["settings"], now):
            raise UserError(
                f"{folder}: {name} ran with {found.key}: {found.left!r}, the config says {found.right!r}",
                hint=f"`fedaudit run RUN --phase {name}` runs it again",
            )
        chain.same_settings(folder, chain.read_chain(folder), name, now)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
