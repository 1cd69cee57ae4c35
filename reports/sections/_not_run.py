"""The table of runs that came to no end, of a matrix or of absent clients."""

from collections.abc import Sequence

from reports.robustness import NotRun
from reports.section import Table


def unfinished(runs: Sequence[NotRun], called: str, caption: str) -> Table:
    """A row a reason: the first run that came to no end for it, and how many more."""
    return Table(
        header=[called, "Why"],
        rows=[[f"{n.cells[0]} and {len(n.cells) - 1} more", n.reason] for n in runs],
        align="ll",
        widths=[1, 1.6],
        caption=caption,
    )
