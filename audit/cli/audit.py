"""What `run` and `import` have in common: phases into a run folder, and what is said last."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedaudit.audit.cli.app import say
from fedaudit.audit.cli.arguments import locate_run
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.settings.config import Config


@dataclass(frozen=True)
class Asked:
    """What the command line says of an audit: a config or a run folder, where it goes, and on what machine."""

    config: Path
    out: Path | None = None
    workers: str | None = None
    data: Sequence[str] = ()  # copies of what the config reads elsewhere
    trust: bool = False  # whether what the config names may be run and downloaded

    @property
    def folder(self) -> Path:
        """Where it lies, or is to lie."""
        return locate_run({"config": self.config, "out": self.out})

    def load(self) -> "Config":
        """The settings, with the number of workers that the command line says."""
        from fedaudit.audit.planning.load import load_config

        config = load_config(self.config, self.data, trust_plugins=self.trust)
        return config if self.workers is None else config.with_workers(self.workers)


def finish_audit(asked: Asked) -> None:
    """All phases of a config or a run folder, and what `run` says last; raises Exit with the verdict's code."""
    from fedaudit.audit.cli.ending import last_words
    from fedaudit.audit.evidence.files import read_result
    from fedaudit.audit.review.review import review

    settings = asked.load()
    was_there = (asked.folder / "phases.json").exists()
    folder = _run_phases(asked, settings, None)
    # a folder that nobody but this command wrote needs no review
    result = review(folder, settings).result if was_there else read_result(folder.path)
    reports = sorted(folder.path.glob("report.*"), key=lambda p: p.suffix != ".pdf")
    for line in last_words(result, folder.path, reports[0] if reports else folder.audit, trust=asked.trust):
        say(line)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun takes any code but 0 for a crash of its job
        raise typer.Exit
    raise typer.Exit(result.verdict.word.exit_code)


def repeat_phase(asked: Asked, name: str) -> None:
    """One phase of a config or a run folder, once more where it is finished; a simulation goes on instead.

    Raises UserError where there is no such phase, and for all but a simulation where there is no run folder.
    """
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.ending import describe_accuracy
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.evidence.phase import IMPORT, phases
    from fedaudit.audit.phases.execute import execute

    folder = None if name == "simulate" else RunDir.open(asked.folder)
    settings = asked.load()
    known = [p.name for p in phases(settings.case) if p is not IMPORT]
    if name not in known:
        raise UserError(f"--phase must be one of {', '.join(known)}, got {name}", hint="leave it out to run all")
    if folder is None:
        folder = _run_phases(asked, settings, [name])
        say(describe_accuracy(folder.history()))
        say(f"run folder: {folder.path}")
        return
    with progress() as report_progress:
        execute(folder, settings, [name], report_progress, skip_finished=False)
    say(f"{name}: done, {folder.path}")


def _run_phases(asked: Asked, config: "Config", names: list[str] | None) -> "RunDir":
    """Phases of a config, or of a run folder's own, into the run folder; finished ones are skipped."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.evidence.phase import phases
    from fedaudit.audit.experiments.whole_audit import WholeAudit
    from fedaudit.audit.settings.config import SimulatedConfig

    many = config.workers == "torchrun"
    if many:
        from fedaudit.audit.experiments import ranks
        from fedaudit.fl.runtime import torchrun

        if torchrun.rank():
            ranks.follow(config.require_simulated())
            raise typer.Exit
    was_begun = (asked.folder / "phases.json").exists()  # which was allowed then
    if isinstance(config, SimulatedConfig) and not many and not was_begun:
        from fedaudit.audit.cli.confine import choose_limits
        from fedaudit.audit.cli.preflight import Forecast

        Forecast(config).refuse_endless(choose_limits(works=True).seconds)
    folder = RunDir.open(asked.folder) if asked.config.is_dir() else RunDir.create(asked.folder)
    wanted = names or [p.name for p in phases(config.case)]
    with torchrun.lead() if many else nullcontext(), progress() as report_progress:
        WholeAudit(folder, config).execute(wanted, report_progress)
    return folder
