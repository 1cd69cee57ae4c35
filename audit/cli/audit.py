"""What `run` and `import` have in common: phases into a run folder, and what is said last."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedaudit.audit.cli.app import say
from fedaudit.audit.cli.arguments import locate_run
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.settings.config import Config


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
    from fedaudit.audit.phases.result_file import read_result
    from fedaudit.audit.phases.review import review

    settings = load_settings(config, workers, data, trust=trust)
    was_there = (locate_run({"config": config, "out": out}) / "phases.json").exists()
    folder = run_phases(config, out, settings, None, hours)
    # a folder that nobody but this command wrote needs no review
    result = review(folder, settings).result if was_there else read_result(folder.path)
    reports = sorted(folder.path.glob("report.*"), key=lambda p: p.suffix != ".pdf")
    for line in last_words(result, folder.path, reports[0] if reports else folder.audit):
        say(line)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun takes any code but 0 for a crash of its job
        raise typer.Exit
    raise typer.Exit(result.verdict.word.exit_code)


def repeat_phase(
    config: Path,
    name: str,
    out: Path | None = None,
    workers: str | None = None,
    hours: float = 24,
    data: list[str] | None = None,
    *,
    trust: bool = False,
) -> None:
    """One phase of a config or a run folder, once more where it is finished; a simulation goes on instead.

    Raises UserError where there is no such phase, and for all but a simulation where there is no run folder.
    """
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.ending import describe_accuracy
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.phases.execute import execute
    from fedaudit.audit.phases.plan import IMPORT, phases

    folder = None if name == "simulate" else RunDir.open(locate_run({"config": config, "out": out}))
    settings = load_settings(config, workers, data, trust=trust)
    known = [p.name for p in phases(settings.case) if p is not IMPORT]
    if name not in known:
        raise UserError(f"--phase must be one of {', '.join(known)}, got {name}", hint="leave it out to run all")
    if folder is None:
        folder = run_phases(config, out, settings, [name], hours)
        say(describe_accuracy(folder.history()))
        say(f"run folder: {folder.path}")
        return
    with progress() as report_progress:
        execute(folder, settings, [name], report_progress, skip_finished=False)
    say(f"{name}: done, {folder.path}")


def load_settings(path: Path, workers: str | None, data: list[str] | None, *, trust: bool) -> "Config":
    """A config, or that of a run folder, with the number of workers that the command line says."""
    from fedaudit.audit.phases.load import load_config

    config = load_config(path, data, trust_plugins=trust)
    return config if workers is None else config.with_workers(workers)


def run_phases(path: Path, out: Path | None, config: "Config", names: list[str] | None, hours: float) -> "RunDir":
    """Phases of a config, or of a run folder's own, into the run folder; finished ones are skipped."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.experiments.whole_audit import WholeAudit
    from fedaudit.audit.phases.plan import phases
    from fedaudit.audit.settings.config import SimulatedConfig

    many = config.workers == "torchrun"
    if many:
        from fedaudit.audit.experiments import ranks
        from fedaudit.fl.runtime import torchrun

        if torchrun.rank():
            ranks.follow(config.require_simulated())
            raise typer.Exit
    at = locate_run({"config": path, "out": out})
    was_begun = (at / "phases.json").exists()  # which was allowed then
    if isinstance(config, SimulatedConfig) and not many and not was_begun:
        from fedaudit.audit.cli.preflight import Forecast

        Forecast(config).refuse_endless(hours)
    folder = RunDir.open(at) if path.is_dir() else RunDir.create(at)
    wanted = names or [p.name for p in phases(config.case)]
    with torchrun.lead() if many else nullcontext(), progress() as report_progress:
        WholeAudit(folder, config).execute(wanted, report_progress)
    return folder
