"""Papers: run the cells of a published table and print ours beside theirs.

    python -m benchmarks.paper_tables.main --list
    python -m benchmarks.paper_tables.main rebafl-1 --rounds 200 --seeds 7,8 --column fmnist-m20 --rows
    FedAvg,ReBaFL

Only the simulate phase runs, into runs/papers/TABLE/COLUMN/ROW/seed-S-rN; what is finished is not run
again, what was killed continues, and many cells run side by side. All rows of a column share, seed by
seed, the partition, the first model, who takes part and the batches. runs/papers/TABLE/table.md holds
everything finished so far, at any number of rounds. Cells that come with the project (`finished/`)
are not run again; `--keep` adds to them, and `--claims` prints what they decide.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.paper_tables.table import Table, known, load_table, tables
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

ROOT = Path("runs") / "papers"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which cells are run, and with which data. Empty columns or rows: all."""

    rounds: int
    seeds: Sequence[int]
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workers: str | int = "auto"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(
                f"--rounds must be >= 1, got {self.rounds}", hint="leave it out for the paper's number"
            )

    def cells(self, table: Table) -> list[tuple[str, str, int]]:
        """(column, row, seed), seed by seed so that a first complete table comes early."""
        columns = [known(c, table.columns, f"column in {table.name}:") for c in self.columns]
        rows = [known(r, table.rows, f"row in {table.name}:") for r in self.rows]
        found = [
            (column, row, seed)
            for column in columns or table.columns
            for seed in self.seeds
            for row in table.needed(column, rows or table.rows)
        ]
        if not found:
            raise UserError(
                f"{table.name} has none of the rows in these columns",
                hint="`python -m benchmarks.paper_tables.main --list` shows what there is",
            )
        return found


def reproduce(table: Table, chosen: Selection, root: Path = ROOT, keep: bool = False) -> Path:
    """Run the chosen cells below root/TABLE and write table.md there; returns its path.

    Cells that come with the table are not run. `keep` adds those that went to their end to them.

    Every config is checked and every data set read once before the first run starts. Raises UserError
    that names the cells which failed, after all others went to their end.
    """
    from benchmarks.paper_tables import finished
    from benchmarks.paper_tables.report import blocks, collect, markdown
    from fedaudit.audit.case.simulated import SimulatedCase
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.experiments.cells import RunCell, combine_failures, list_cells, run_cells
    from fedaudit.fl.runtime.sharing import sharing

    page = root / table.name / "table.md"
    todo = {
        f"{column}/{row}/seed-{seed}-r{chosen.rounds}": (column, row, seed)
        for column, row, seed in finished.missing(table, chosen.cells(table), chosen.rounds)
    }
    overrides = {
        name: table.overrides(
            column, row, rounds=chosen.rounds, seed=seed, data=chosen.data, workers=chosen.workers
        )
        for name, (column, row, seed) in todo.items()
    }
    cells = list_cells(table.base, overrides, page.parent, ("simulate",))

    def write(cell: RunCell | None = None) -> None:  # after each: a long table is readable while it grows
        if cell is not None and not sys.stderr.isatty():  # where the bar is silent
            typer.echo(f"{cell.name}: done", err=True)
        found = collect(table, page.parent)
        durable.write(page, markdown(table, found, blocks(table, found.runs)).encode())

    with sharing(), progress() as report:
        configs = [c.config.require_simulated() for c in cells]
        for config in {str(c.federation.dataset): c for c in configs}.values():
            SimulatedCase(config).data  # noqa: B018  (read once, before the first run)
        failures = run_cells(cells, report, after=write)
    write()
    failed = {f.name for f in failures}
    for cell in cells if keep else ():
        if cell.name not in failed:
            column, row, seed = todo[cell.name]
            finished.keep(table, cell.folder, column, row, rounds=chosen.rounds, seed=seed)
    if failures:
        raise combine_failures(failures, len(cells))
    return page


def show(table: Table, chosen: Selection, root: Path = ROOT) -> None:
    """Print what was chosen: tables on a terminal, Markdown in a pipe."""
    from benchmarks.paper_tables.report import Collected, blocks, collect, markdown
    from fedaudit.audit.cli.show import print_table

    wanted = set(chosen.cells(table))
    found = collect(table, root / table.name)
    runs = [r for r in found.runs if r.rounds == chosen.rounds and (r.column, r.row, r.seed) in wanted]
    parts = blocks(table, runs, [row for row in table.rows if any(row == w[1] for w in wanted)])
    if not sys.stdout.isatty():
        typer.echo(markdown(table, Collected(runs, found.outdated), parts))
        return
    typer.echo(f"{table.header.title}\n{table.header.source}\n")
    for part in parts:
        typer.echo(f"{part.title}\n{part.text}")
        print_table(part.header, part.rows)
        typer.echo()


def listing() -> None:
    """The tables that come with the project, their columns and their rows."""
    for name in tables():
        table = load_table(name)
        typer.echo(f"{name}: {table.header.title} ({table.rounds} rounds)")
        typer.echo(f"  columns: {', '.join(table.columns)}")
        typer.echo(f"  rows: {', '.join(table.rows)}")


def verdicts(names: Sequence[str], root: Path = ROOT) -> None:
    """Print, as Markdown, what finished cells say of the claims of these tables."""
    from benchmarks.paper_tables.claims import section
    from benchmarks.paper_tables.report import collect

    for table in map(load_table, names):
        if table.header.claims:
            typer.echo(section(table, collect(table, root / table.name).runs))


def _words(text: str) -> list[str]:
    return [w for w in (part.strip() for part in text.split(",")) if w]


def _seeds(text: str) -> list[int]:
    words = _words(text)
    if not words or not all(w.isdecimal() for w in words):
        raise UserError(f"--seeds must be whole numbers, got {text!r}", hint="--seeds 7,8")
    return list(dict.fromkeys(map(int, words)))


def _data(entries: Sequence[str], download: bool) -> dict[str, dict[str, Any]]:
    """Settings of data sets by name, from NAME=FOLDER and --download."""
    from fedaudit.audit.settings import catalog

    found: dict[str, dict[str, Any]] = {}
    if download:
        for name in catalog.names("datasets"):
            if "download" in getattr(catalog.load("datasets", name).Config, "__annotations__", {}):
                found[name] = {"download": True}
    for entry in entries:
        name, equals, folder = entry.partition("=")
        if not equals or not folder:
            raise UserError(
                f"--data must be NAME=FOLDER, got {entry!r}", hint="--data cifar10=/data/cifar-10-batches-bin"
            )
        known(name, catalog.names("datasets"), "data set")
        found.setdefault(name, {})["path"] = folder
    return found


def main(
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="a name, or a file")] = None,
    rounds: Annotated[int | None, typer.Option(help="default: the paper's")] = None,
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "7",
    column: Annotated[str, typer.Option(help="comma-separated; default: all")] = "",
    rows: Annotated[str, typer.Option(help="comma-separated; default: all")] = "",
    data: Annotated[list[str] | None, typer.Option(help="NAME=FOLDER of a data set")] = None,
    download: Annotated[bool, typer.Option("--download", help="let data sets be fetched")] = False,
    workers: Annotated[str, typer.Option(help="auto, or how many processes")] = "auto",
    out: Annotated[Path, typer.Option(help="where run folders lie")] = ROOT,
    keep: Annotated[bool, typer.Option("--keep", help="add finished cells to those beside the table")] = False,
    claims: Annotated[bool, typer.Option("--claims", help="print verdicts of the claims and stop")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the tables and stop")] = False,
) -> None:
    """Run the cells of a published table and print ours beside theirs."""
    try:
        if claims:
            verdicts([name] if name else tables(), out)
            return
        if list_ or name is None:
            listing()
            return
        table = load_table(name)
        chosen = Selection(
            rounds=table.rounds if rounds is None else rounds,
            seeds=_seeds(seeds),
            columns=_words(column),
            rows=_words(rows),
            data=_data(data or [], download),
            workers=int(workers) if workers.isdecimal() else workers,
        )
        page = reproduce(table, chosen, out, keep)
        show(table, chosen, out)
        typer.echo(f"table: {page}", err=True)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command continues", err=True)
        raise typer.Exit(130) from None
    except UserError as error:
        if os.environ.get("FEDAUDIT_DEBUG"):
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
