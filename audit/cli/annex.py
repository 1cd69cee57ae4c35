"""What a report withholds, in a page of its own for those who may see it."""

from pathlib import Path
from typing import Annotated

import typer

from fedaudit.audit.cli.app import reader, say, tools
from fedaudit.audit.cli.arguments import Data, RunFolder, Trust
from fedaudit.fl.runtime.errors import UserError


@reader(tools, writes=["run"], files=["page"])
def annex(
    run: RunFolder,
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="an HTML file to write")],
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Write what the report of a run withholds into a page of its own."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.load import load_config
    from fedaudit.audit.phases.report import render_annex
    from fedaudit.audit.phases.score import Scoring
    from fedaudit.fl.runtime import durable

    if page.suffix != ".html":
        raise UserError(f"an annex is one page of HTML, got {page}", hint="fedaudit tools annex RUN annex.html")
    folder = RunDir.open(run)
    whole = Scoring(folder, load_config(run, data, trust_plugins=trust)).derive_whole()
    durable.write(page, render_annex(whole))
    say(f"{page}: pictures of people's data; keep it apart from the report")
