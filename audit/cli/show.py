"""What the command line prints: tables, progress, and the doctor's findings."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from audit.cli.app import say
from audit.settings import catalog
from audit.subject.environment import versions
from fl.errors import UserError
from fl.machine import cores
from reports.visible import visible


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal; in a pipe, one tab-separated line a row."""
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(" ".join(cell.split()) for cell in row))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A callback (phase, done, total) that draws one line a phase; silent when not on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, done, total: None
        return
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as bars:

        def report(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(visible(phase), total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield report


def doctor() -> list[list[str]]:
    """Rows of what is installed, what the work would run on, and which data can be read."""
    import torch

    rows = [[name, found] for name, found in versions().items()]
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda, {torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    rows += [["device", device], ["cores", str(cores())]]
    for name in catalog.names("datasets"):
        rows.append([f"dataset {name}", _dataset(name)])
    rows += [[f"config {p.stem}", str(p)] for p in sorted(Path("configs").glob("*.yaml"))]
    return rows


def _dataset(name: str) -> str:
    try:
        data = catalog.load("datasets", name)().load()
    except UserError as error:
        return f"not ready: {error.args[0]}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    shape = " x ".join(map(str, data.shape))
    return f"{len(data.train):,} + {len(data.test):,} examples of {shape}, {len(data.classes)} classes"
