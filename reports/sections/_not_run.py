"""The table of runs that came to no end, of a matrix or of absent clients."""

from collections.abc import Sequence

from fedaudit.reports.robustness import NotRun
from fedaudit.reports.section import Table


def tabulate_failures(runs: Sequence[NotRun], called: str, caption: str) -> Table:
    """A row a reason: the first run that came to no end for it, and how many more."""
    return Table(
        header=[called, "Why"],
        rows=[[_describe_first(n.cells), n.reason] for n in runs],
        align="ll",
        widths=[1, 1.6],
        caption=caption,
    )


def _describe_first(cells: Sequence[str]) -> str:
    return f"{cells[0]} and {len(cells) - 1:,} more" if len(cells) > 1 else cells[0]
