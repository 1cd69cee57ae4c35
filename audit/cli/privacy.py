"""Commands about differential privacy: what a run spent, the noise for a budget, and claims."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaudit.audit.cli.app import dp, reader, say
from fedaudit.audit.cli.arguments import Data, RunFolder, Trust
from fedaudit.fl.runtime import durable

if TYPE_CHECKING:
    from fedaudit.audit.cli.budget import Text


@reader(dp)
def budget(run: RunFolder, data: Data = None, trust: Trust = False) -> None:
    """Show what a run spent, per observer and over its rounds."""
    from fedaudit.audit.cli.budget import spending

    _print(spending(run, data, trust=trust))


@reader(dp)
def calibrate(
    epsilon: Annotated[float, typer.Option(help="the budget to keep")],
    delta: Annotated[float, typer.Option(help="of the budget")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="over how many rounds")] = 100,
    rate: Annotated[float, typer.Option(help="probability that a client takes part")] = 1.0,
) -> None:
    """Compute the least noise that keeps an epsilon, per observer."""
    from fedaudit.audit.accounting.planner import NoiseQuestion
    from fedaudit.audit.cli.budget import plan

    question = NoiseQuestion(epsilon=epsilon, delta=delta, rounds=rounds, rate=rate)
    _print(plan(question))


def _print(text: "Text") -> None:
    from fedaudit.audit.cli.show import print_table

    print_table(text.header, text.rows)
    for line in text.lines:
        say(line)


@reader(dp, files=["out"])
def claims(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="claims in YAML")],
    out: Annotated[Path, typer.Option(help="the PDF to write")] = Path("claims.pdf"),
) -> None:
    """Score published or contractual claims again and write a PDF."""
    from fedaudit.audit.claims.report import pdf, score_files, tally
    from fedaudit.audit.cli.show import print_table, progress
    from fedaudit.reports.claims import table
    from fedaudit.reports.section import words

    with progress() as report_progress:
        title, found = score_files(files, report_progress)
    durable.write(out, pdf(title, found, f"fedaudit dp claims {' '.join(map(str, files))}"))
    shown = table(found)
    print_table(shown.header, [[words(c) for c in row] for row in shown.rows])
    for claim in found:
        say(f"{claim.id}: {claim.verdict}")
    say(tally(found))
    say(f"report: {out}")
