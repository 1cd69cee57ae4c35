"""Cells: one config many times with some keys changed, each cell a run folder of its own.

Variants, published tables and sweeps are lists of overrides. Cells that are left to do run side by side, one
to a process, where they are at least as many as the processes, the longest first; the last ones attack on the
cores that others gave up as well. Fewer run one after the other, and their clients get the processes. Under
torchrun every rank takes cells. Cells of one process share data and first models. Bits do not depend on any of
this, nor on kills: a cell continues like any run. A cell that fails is named at the end and does not stop the
others.
"""

import dataclasses
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import PHASES, Progress, is_complete
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import resolve
from fedaudit.fl.runtime.errors import BrokenPlugin, UserError, describe_unexpected
from fedaudit.fl.runtime.machine import choose_device, cores_of_rank
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.runtime.side_by_side import Death, side_by_side
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.runtime.workers import processes
from fedaudit.reports import format as fmt
from fedaudit.reports.robustness import NotRun

if TYPE_CHECKING:
    from fedaudit.fl.runtime.torchrun import Call

BROKEN, REFUSED = 1, 2  # codes of a cell: it went wrong, or its config was refused
ALL = tuple(p.name for p in PHASES)
PRELOAD = ("fedaudit.audit.experiments.cells", "fedaudit.audit.phases.attack")  # of a process of cells


@dataclass(frozen=True, kw_only=True)
class RunCell:
    """One run: its name in progress and errors, its folder, its config and the phases wanted."""

    name: str
    folder: Path
    config: Config
    phases: tuple[str, ...] = ALL
    seconds: float = 0.0  # an estimate, by which the longest begin first


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cell that did not go to its end; `code` is a command's exit code, or minus a signal's number."""

    name: str
    code: int
    sentence: str
    hint: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether its config was refused; anything else failed."""
        return self.code == REFUSED


# runs cells, by their overrides: those that came to their end, and why others did not
Simulate = Callable[[Mapping[str, Mapping[str, Any]]], tuple[list[RunCell], list[Failure]]]


def list_cells(
    base: Config | Mapping[str, Any],
    overrides: Mapping[str, Mapping[str, Any]],
    root: Path,
    phases: tuple[str, ...] = ALL,
) -> list[RunCell]:
    """One cell for each name, in the folder root/NAME ("krum/seed-7" is two deep).

    Each comes from where `base` does; settings that a program gives are its own word.

    Raises UserError, naming the cell, where a name leads out of `root` or into another cell's folder,
    and where the changed config is not valid.
    """
    for name in overrides:
        path = PurePosixPath(name)
        if str(path) != name or path.is_absolute() or not path.parts or ".." in path.parts:
            raise UserError(f"cell {name!r} cannot name a folder", hint="write names as A or A/B")
        if above := [str(p) for p in path.parents if str(p) in overrides]:
            raise UserError(f"cell {name} would lie inside cell {above[0]}", hint="give it another name")
    origin = base.origin if isinstance(base, Config) else Origin(trust=True)
    configs = {n: overridden(base, o, where=f"cell {n}").set_origin(origin) for n, o in overrides.items()}
    return [RunCell(name=n, folder=root / n, config=config, phases=phases) for n, config in configs.items()]


def run_cells(
    todo: Sequence[RunCell],
    progress: Progress,
    *,
    workers: str | int | None = None,
    after: Callable[[RunCell], None] = lambda cell: None,
) -> list[Failure]:
    """Run every cell to its end, finished phases skipped; returns those that failed, in their order.

    `workers`: how many processes, by default as the first cell's config says. `after` is called here
    with every cell that just went to its end. Progress comes as "NAME: PHASE" and, of all, as "cells".
    """
    failures: dict[str, Failure] = {}
    left = sorted((cell for cell in todo if not _is_done(cell)), key=lambda cell: -cell.seconds)
    ended = len(todo) - len(left)

    def end(cell: RunCell, failure: Failure | None) -> None:
        nonlocal ended
        ended += 1
        progress("cells", ended, len(todo))
        if failure is None:
            after(cell)
        else:
            failures[cell.name] = failure

    progress("cells", ended, len(todo))
    if not left:
        return []
    if workers is None and (call := _share_out(left)):
        _run_apart((left[i] for i in call.claim(range(len(left)))), cores_of_rank(), progress, end)
        for number, answer in call.answers(range(len(left))):
            end(left[number], Failure(**parse_json(answer)) if answer else None)
        return [failures[c.name] for c in todo if c.name in failures]
    config = left[0].config
    count = processes(config.workers if workers is None else workers, choose_device(config.device))
    if 1 < count <= len(left):
        _run_apart(left, count, progress, end)
    else:
        # A torchrun job of one rank answers the audit's own simulation, not those of its cells
        as_stated = workers is None and config.workers != "torchrun"
        with sharing():
            for cell in left:
                end(cell, _run(cell, progress, workers=None if as_stated else count))
    return [failures[c.name] for c in todo if c.name in failures]


def run_all(cells: Sequence[RunCell], progress: Progress) -> tuple[list[RunCell], list[Failure]]:
    """Those that came to their end, and why others did not."""
    failures = run_cells(cells, progress)
    failed = {f.name for f in failures}
    return [cell for cell in cells if cell.name not in failed], failures


def do_share(origin: Origin, call: "Call", _: Path, what: Sequence[Mapping[str, Any]]) -> None:
    """Cells that another rank of a torchrun job asked for, as far as this one takes some."""
    cells = [
        RunCell(
            name=w["name"],
            folder=Path(w["folder"]),
            config=Config.model_validate(w["config"]).set_origin(origin),
            phases=tuple(w["phases"]),
        )
        for w in what
    ]
    numbers = {cell.name: i for i, cell in enumerate(cells)}

    def end(cell: RunCell, failure: Failure | None) -> None:
        call.end(numbers[cell.name], json.dumps(dataclasses.asdict(failure)) if failure else "")

    claimed = (cells[i] for i in call.claim(range(len(cells))))
    _run_apart(claimed, cores_of_rank(), lambda *_: None, end)


def _share_out(cells: Sequence[RunCell]) -> "Call | None":
    """Ask the other ranks of a torchrun job, if this is one."""
    if (workers := cells[0].config.workers) != "torchrun":
        return None
    from fedaudit.audit.planning.shares import share_out

    what = [
        {
            "name": c.name,
            "folder": str(c.folder.resolve()),
            "config": c.config.model_dump(mode="json"),
            "phases": c.phases,
        }
        for c in cells
    ]
    return share_out(workers, "cells", cells[0].folder, what)


def _run_apart(
    cells: Iterable[RunCell], count: int, progress: Progress, end: Callable[[RunCell, Failure | None], None]
) -> None:
    """One cell to a process, in so many processes; `end` hears what became of each."""

    def describe_end(cell: RunCell, result: Failure | Death | None) -> None:
        if isinstance(result, Death):
            result = Failure(name=cell.name, code=result.code, sentence=str(result), hint="use fewer workers")
        end(cell, result)

    side_by_side(cells, _run_alone, progress, describe_end, processes=count, preload=PRELOAD)


def combine_failures(failures: Sequence[Failure], total: int, what: str = "cell") -> UserError:
    """One sentence that names every one that failed, of so many."""
    each = "; ".join(f"{f.name} (exit code {f.code}): {f.sentence}" for f in failures)
    hints = [f.hint for f in failures if f.hint]
    hint = hints[0] if hints else "the same command runs again what failed"
    return UserError(f"{len(failures)} of {fmt.plural(total, what)} failed: {each}", hint=hint)


def list_not_run(failures: Sequence[Failure]) -> list[NotRun]:
    """Cells that came to no end, by reason: what was refused does not apply; anything else failed."""
    by_reason: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for f in failures:
        by_reason[f.sentence, not f.is_refusal].append(f.name)
    return [NotRun(cells=names, reason=reason, failed=bad) for (reason, bad), names in by_reason.items()]


def _is_done(cell: RunCell) -> bool:
    if not RunDir(cell.folder).config.is_file():
        return False
    try:
        terms = {name: chain.digest_terms(cell.config, name) for name in cell.phases}
        return is_complete(cell.folder, resolve(cell.config), terms)
    except UserError:
        return False  # said when it runs


def _run_alone(cell: RunCell, progress: Progress) -> Failure | None:
    """In a process of its own, its clients with it."""
    return _run(cell, progress, workers=0)


def _run(cell: RunCell, progress: Progress, workers: int | None) -> Failure | None:
    """One cell here, its clients in `workers` processes; None: as its config says."""
    report = partial(_report_progress, cell.name, progress)
    try:
        folder = RunDir.create(cell.folder)
        execute(folder, cell.config, cell.phases, report, skip_finished=True, workers=workers)
    except UserError as error:
        code = BROKEN if isinstance(error, BrokenPlugin) else REFUSED
        return Failure(name=cell.name, code=code, sentence=error.sentence, hint=error.hint)
    except Exception as error:
        if os.environ.get("FEDAUDIT_DEBUG"):
            raise
        return Failure(name=cell.name, code=BROKEN, sentence=describe_unexpected(error)[0])
    return None


def _report_progress(name: str, progress: Progress, phase: str, at: int, total: int) -> None:
    progress(f"{name}: {phase}", at, total)
