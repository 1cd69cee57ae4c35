"""The command that ends the keeping of people's data: what a run holds of them goes, the audit stays."""

from pathlib import Path
from typing import Annotated

import typer

from fedaudit.audit.cli.app import reader, say, tools


@reader(tools, writes=["run"])
def shred(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")],
    yes: Annotated[bool, typer.Option("--yes", help="do it; without, it is only said")] = False,
) -> None:
    """Remove people's data from a run; the audit stays.

    Examples, messages and what attacks drew are removed; audit.json, reports and digests stay.
    """
    from fedaudit.audit.case.run_folder import RunDir, list_files_of_people
    from fedaudit.fl.runtime import durable
    from fedaudit.reports.format import plural

    folder = RunDir.open(run)
    files = sorted(list_files_of_people(folder.path))
    size = sum(path.stat().st_size for path in files)
    say(f"{plural(len(files), 'file')} of people's data, {size / 1e6:,.1f} MB, in {run}")
    if not yes:
        say(f"nothing was removed; to remove them for good: fedaudit tools shred {run} --yes")
        return
    with folder.lock():
        for path in files:
            durable.overwrite(path)
    say("removed; audit.json and the reports are left, and nothing can be derived or checked any more")
    say("copies in a backup, a snapshot or the disk's own spare blocks are not reached; encrypt the disk")
