"""Finished cells as small files beside their tables, so that the next run, and a reader, go on from there.

configs/papers/finished/TABLE/COLUMN/ROW/seed-S-rN.json holds a cell's metrics round by round, the digest of the
settings it ran with (not where its data lay), the digest of its data, and the commit and libraries that ran it.
It counts while the table's settings are still those; `--keep` writes what a run folder has finished.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from audit.phases.links import read_chain
from audit.reproduce.table import Table, wanting_a_path
from audit.settings.config import SIMULATED
from audit.settings.errors import validate
from audit.settings.resolve import resolve
from audit.subject.digests import of_value
from audit.subject.rundir import RunDir
from fl import durable
from fl.errors import UserError

# What statistics of tables read (audit/verdict/metrics.py)
KEYS = (
    "accuracy",
    "class_accuracy",
    "phase",
    "selected",
    "delivered",
    "samples_used",
    "steps",
    "bytes_up",
    "bytes_down",
    "weight_diversity",
    "round_length",
    "clock",
)


class Kept(BaseModel):
    """One finished cell."""

    model_config = ConfigDict(extra="forbid")

    column: str
    row: str
    seed: int
    rounds: int
    settings: str  # digest of what was simulated, as `digest` takes it
    data: str  # digest of the data set
    commit: str
    versions: dict[str, str]
    history: list[dict[str, Any]]


def digest(table: Table, column: str, row: str, *, rounds: int, seed: int) -> str:
    """Of the settings that a cell is simulated with, wherever its data lie."""
    aside = {name: {"path": "anywhere"} for name in wanting_a_path()}
    resolved = resolve(table.cell(column, row, rounds=rounds, seed=seed, data=aside))
    found = {k: resolved[k] for k in ("seed", *SIMULATED)}
    source = {k: v for k, v in found["federation"]["dataset"].items() if k not in ("path", "download")}
    return of_value(found | {"federation": found["federation"] | {"dataset": source}})


def keep(table: Table, folder: Path, column: str, row: str, *, rounds: int, seed: int) -> Path:
    """Write the file of a cell that went to its end in the run folder `folder`; returns its path."""
    run = RunDir(folder)
    link = read_chain(run).links["simulate"]
    history = [{k: _short(record[k]) for k in KEYS if k in record} for record in run.history()]
    found = Kept(
        column=column,
        row=row,
        seed=seed,
        rounds=rounds,
        settings=digest(table, column, row, rounds=rounds, seed=seed),
        data=run.read_json(folder / "data.json")["data"],
        commit=link.aside.commit,
        versions=link.versions,
        history=history,
    )
    path = table.kept / column / row / f"seed-{seed}-r{rounds}.json"
    lines = ",\n  ".join(json.dumps(record) for record in found.history)
    head = found.model_dump_json(indent=1, exclude={"history"}).rstrip("}\n")
    durable.write(path, f'{head},\n "history": [\n  {lines}\n ]\n}}\n'.encode())
    return path


def _short(value: Any) -> Any:
    """To seven digits: a float32 has no more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return [_short(v) for v in value] if isinstance(value, list) else value


def read(table: Table) -> Iterator[Kept]:
    """The cells that still count, in the order of columns, rows, rounds and seeds.

    Raises UserError where a file is no such cell, or lies under another's name.
    """
    for column in table.columns:
        for row in table.rows_of(column):
            for path in sorted((table.kept / column / row).glob("*.json")):
                found = _read(path)
                cell = (found.column, found.row, f"seed-{found.seed}-r{found.rounds}")
                if cell != (column, row, path.stem):
                    raise UserError(
                        f"{path}: holds the cell {'/'.join(cell)}", hint="give the file the name of its cell"
                    )
                if found.settings == digest(table, column, row, rounds=found.rounds, seed=found.seed):
                    yield found


def _read(path: Path) -> Kept:
    try:
        value = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(
            f"{path}: not a finished cell: {error}", hint="remove it, or run the cell again"
        ) from None
    return validate(Kept, value, path)


def missing(table: Table, cells: Sequence[tuple[str, str, int]], rounds: int) -> list[tuple[str, str, int]]:
    """Those of (column, row, seed) that no file holds at this number of rounds."""
    have = {(k.column, k.row, k.seed) for k in read(table) if k.rounds == rounds}
    return [cell for cell in cells if cell not in have]
