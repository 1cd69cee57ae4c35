"""What the command line prints: tables and progress."""

import math
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedaudit.audit.cli.app import say
from fedaudit.audit.cli.time_left import TimeLeft
from fedaudit.reports.format import duration
from fedaudit.reports.visible import visible_line

GAP = 2  # spaces between two columns
EVERY = 30.0  # seconds between two lines of a log, where nothing else is to be said


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal; in a pipe, one tab-separated line a row.

    No word is broken: where the longest words of all columns do not fit side by side, each row is a paragraph.
    """
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(" ".join(cell.split()) for cell in row))
        return
    console = Console()
    shown = [[visible_line(row[0]), *(visible_line(" ".join(cell.split())) for cell in row[1:])] for row in rows]
    columns = list(zip(header, *shown, strict=True))
    least = [max(map(cell_len, cells if i == 0 else list_words(cells))) for i, cells in enumerate(columns)]
    if sum(least) + GAP * len(least) > console.width:
        for line in write_paragraphs(header, shown, console.width):
            console.print(Text(line), soft_wrap=True)
        return
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold")
    most = [max(map(cell_len, cells)) for cells in columns]
    for i, width in enumerate(share_width(console.width - GAP * len(least), least, most)):
        table.add_column(header[i], no_wrap=i == 0, width=width)
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table)


def share_width(width: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Widths of columns, each at least `least` and at most `most`: whoever lacks most gets the next place."""
    found, spare = list(least), min(width, sum(most)) - sum(least)
    for _ in range(spare):
        lacking = [m - f for m, f in zip(most, found, strict=True)]
        found[lacking.index(max(lacking))] += 1
    return found


def list_words(cells: Sequence[str]) -> list[str]:
    """All words of some cells; one empty word where there is none."""
    return [word for cell in cells for word in cell.split()] or [""]


def write_paragraphs(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Each row as its first cell and, below it, a line "name: cell" for every other that is not empty."""
    for first, *others in rows:
        yield first
        for name, cell in zip(header[1:], others, strict=True):
            if cell:
                yield from textwrap.wrap(
                    f"{name}: {cell}".removeprefix(": "),
                    width,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A callback (phase, done, total) that draws one line a phase; off a terminal one line a step.

    "attack (upcnn, about 40 s)" is the phase attack, and what it does at present.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(lambda text: say(text, err=True))
        return
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[present]}"),
    )
    tasks: dict[str, TaskID] = {}
    paces: defaultdict[str, TimeLeft] = defaultdict(TimeLeft)
    with Progress(*columns, console=console) as bars:

        def report(said: str, done: int, total: int) -> None:
            phase, present = split(visible_line(said))
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total, present="", left="")
            paces[phase].note(done, present)
            left = paces[phase].estimate(total) if done < total else None
            bars.update(
                tasks[phase],
                completed=done,
                total=total,
                present="" if done >= total else present,
                left=_describe_left(left),
                visible=done < total or ": " not in phase,  # of many runs side by side those that go on
            )

        yield report


def _describe_left(seconds: float | None) -> str:
    """In words; empty where it is not known."""
    return "" if seconds is None else f"about {duration(seconds)} left"


def split(said: str) -> tuple[str, str]:
    """The phase, and what it does at present."""
    phase, _, present = said.removesuffix(")").partition(" (")
    return phase, present


class Lines:
    """Progress for a log: a line where a run or a step of a phase begins, where it ends, and now and then."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock = write, clock
        self.began: dict[str, float] = {}
        self.paces: defaultdict[str, TimeLeft] = defaultdict(lambda: TimeLeft(clock))
        self.told: dict[str, tuple[str, float]] = {}  # phase -> its step, and when a line was last written
        self.ended: set[str] = set()

    def __call__(self, said: str, done: int, total: int) -> None:
        phase, present = split(said)
        now = self.clock()
        if phase in self.ended:
            return
        if done >= total:
            self.ended.add(phase)
            took = now - self.began.get(phase, now)
            self.write(f"{phase}: done" + (f", {duration(took)}" if took >= 1 else ""))
            return
        self.began.setdefault(phase, now)
        self.paces[phase].note(done, present)
        if phase not in self.told:  # of all phases the first begins with a line, so that a log is not empty
            self.told[phase] = "", now if self.told or self.ended or not done else -math.inf
        step, last = self.told[phase]
        if (present and present != step) or now - last >= EVERY:
            self.told[phase] = present or step, now
            left = _describe_left(self.paces[phase].estimate(total))
            ahead = f", {left}" if left else ""
            self.write(f"{phase}: {f'{present}, ' if present else ''}{done:,} of {total:,}{ahead}")
