"""What `run`, `phase simulate` and `import` have in common: phases into a run folder, and what is said last."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedaudit.audit.cli.app import CONFINED, say
from fedaudit.audit.cli.arguments import locate_run

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.settings.config import Config
    from fedaudit.reports.result import AuditResult


def finish_audit(
    config: Path,
    out: Path | None = None,
    workers: str | None = None,
    hours: float = 24,
    data: list[str] | None = None,
    *,
    trust: bool = False,
) -> None:
    """All phases of a config or a run folder, and what `run` says last; raises Exit with the verdict's code."""
    from fedaudit.audit.cli.ending import last_words

    settings = load_settings(config, workers, data, trust=trust)
    folder, result = _recall_audit(config, out, settings) or _run_audit(config, out, settings, hours)
    reports = sorted(folder.path.glob("report.*"), key=lambda p: p.suffix != ".pdf")
    for line in last_words(result, folder.path, reports[0] if reports else folder.audit):
        say(line)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun takes any code but 0 for a crash of its job
        raise typer.Exit
    raise typer.Exit(result.verdict.word.exit_code)


def load_settings(path: Path, workers: str | None, data: list[str] | None, *, trust: bool) -> "Config":
    """A config, or that of a run folder, with the number of workers that the command line says."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.phases.load import load_config
    from fedaudit.audit.settings.received import parse_data

    if path.is_dir():
        config = RunDir.open(path).load_config(trust_plugins=trust, data=parse_data(data))
    else:
        config = load_config(path, data, trust_plugins=trust)
    return config if workers is None else config.with_workers(workers)


def _recall_audit(path: Path, out: Path | None, config: "Config") -> "tuple[RunDir, AuditResult] | None":
    """A finished audit that was reviewed here and has not changed since; None where there is none."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.phases.reviewed import recall_review
    from fedaudit.audit.settings.resolve import dump, resolve

    at = locate_run({"config": path, "out": out})
    if config.workers == "torchrun" or not (at / "audit.json").is_file():
        return None
    folder = RunDir.open(at)
    is_same = path.is_dir() or folder.config.read_bytes() == dump(resolve(config)).encode()
    made = recall_review(at) if is_same else None
    return (folder, made.result) if made else None


def _run_audit(path: Path, out: Path | None, config: "Config", hours: float) -> "tuple[RunDir, AuditResult]":
    """All phases, and a review of what they left, which the program keeps where the folder's bytes decide all.

    Of a folder that nobody but this command wrote, and whose review would not be kept, there is none.
    """
    from fedaudit.audit.phases.result_file import read_result
    from fedaudit.audit.phases.review import review
    from fedaudit.audit.phases.reviewed import keep_review
    from fedaudit.audit.settings.resolve import reads_elsewhere

    was_there = (locate_run({"config": path, "out": out}) / "phases.json").exists()
    folder = run_phases(path, out, config, None, hours)
    is_kept = CONFINED.get() and not reads_elsewhere(config)
    if not was_there and not is_kept:
        return folder, read_result(folder.path)
    made = review(folder, folder.load_config() if is_kept else config)
    if is_kept:
        keep_review(folder.path, made)
    return folder, made.result


def run_phases(path: Path, out: Path | None, config: "Config", names: list[str] | None, hours: float) -> "RunDir":
    """Phases of a config, or of a run folder's own, into the run folder; finished ones are skipped."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.phases.plan import phases
    from fedaudit.audit.phases.variants import execute_all
    from fedaudit.audit.settings.config import require_simulated

    many = config.workers == "torchrun"
    if many:
        from fedaudit.audit.phases import ranks
        from fedaudit.fl.runtime import torchrun

        if torchrun.rank():
            ranks.follow(require_simulated(config))
            raise typer.Exit
    at = locate_run({"config": path, "out": out})
    if not many and not (at / "phases.json").exists():  # what was begun was allowed
        from fedaudit.audit.cli.preflight import refuse_endless

        refuse_endless(config, hours)
    folder = RunDir.open(at) if path.is_dir() else RunDir.create(at)
    wanted = names or [p.name for p in phases(config.case)]
    with torchrun.lead() if many else nullcontext(), progress() as report_progress:
        execute_all(folder, config, wanted, report_progress)
    return folder
