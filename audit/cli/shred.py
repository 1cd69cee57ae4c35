"""The command that ends the keeping of people's data: what a run holds of them goes, the audit stays."""

from pathlib import Path
from typing import Annotated

import typer

from fedaudit.audit.cli.app import reader, say, tools


@reader(tools, writes=["run"])
def shred(run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")]) -> None:
    """Remove people's data from a run; the audit stays.

    Examples, messages and what attacks drew are removed; audit.json, reports and digests stay. It asks before; a
    script says `yes | fedaudit tools shred RUN`.
    """
    from fedaudit.audit.case.run_folder import RunDir, list_files_of_people
    from fedaudit.fl.runtime import durable
    from fedaudit.reports.format import plural

    folder = RunDir.open(run)
    files = sorted(list_files_of_people(folder.path))
    size = sum(path.stat().st_size for path in files)
    say(f"{plural(len(files), 'file')} of people's data, {size / 1e6:,.1f} MB, in {run}")
    if not typer.confirm("Remove them for good?"):
        say("nothing was removed")
        return
    with folder.lock():
        for path in files:
            durable.overwrite(path)
    say("removed; audit.json and the reports are left, and nothing can be derived or checked any more")
    say("copies in a backup, a snapshot or the disk's own spare blocks are not reached; encrypt the disk")
