"""What `run`, `phase simulate` and `import` have in common: phases into a run folder, and what is said last."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedaudit.audit.cli.app import say

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir


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

    folder = run_phases(config, out, workers, None, hours, trust, data)
    result = read_result(folder)
    reports = sorted(folder.path.glob("report.*"), key=lambda p: p.suffix != ".pdf")
    for line in last_words(result, folder.path, reports[0] if reports else folder.audit):
        say(line)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun takes any code but 0 for a crash of its job
        raise typer.Exit
    raise typer.Exit(result.verdict.word.exit_code)


def run_phases(
    path: Path,
    out: Path | None,
    workers: str | None,
    names: list[str] | None,
    hours: float,
    trust: bool,
    data: list[str] | None,
) -> "RunDir":
    """Phases of a config, or of a run folder's own, into the run folder; finished ones are skipped."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.phases.load import load_config
    from fedaudit.audit.phases.plan import phases
    from fedaudit.audit.phases.variants import execute_all
    from fedaudit.audit.settings.config import require_simulated, with_workers
    from fedaudit.audit.settings.received import parse_data

    own = RunDir.open(path) if path.is_dir() else None
    if own:
        config = own.load_config(trust_plugins=trust, data=parse_data(data))
    else:
        config = load_config(path, data, trust_plugins=trust)
    if workers is not None:
        config = with_workers(config, workers)
    many = config.workers == "torchrun"
    if many:
        from fedaudit.audit.phases import ranks
        from fedaudit.fl.runtime import torchrun

        if torchrun.rank():
            ranks.follow(require_simulated(config))
            raise typer.Exit
    at = own.path if own else out or Path("runs") / path.stem
    if not many and not (at / "phases.json").exists():  # what was begun was allowed
        from fedaudit.audit.cli.preflight import refuse_endless

        refuse_endless(config, hours)
    folder = own or RunDir.create(at)
    wanted = names or [p.name for p in phases(config)]
    with torchrun.lead() if many else nullcontext(), progress() as report_progress:
        execute_all(folder, config, wanted, report_progress)
    return folder
