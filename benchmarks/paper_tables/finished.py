"""Finished cells as small files beside their tables, so that the next run, and a reader, go on from there.

`tables/finished/TABLE/COLUMN/ROW/seed-S-rN.json` holds a cell's metrics round by round, what its
table wrote and the settings that were simulated (not where the data lay) with their digest, the digest of the
data, and the commit and libraries that ran it. `--keep` writes what a run folder has finished. It counts while
the table writes the same and those settings are the same; one that nobody writes and that came or went since
stood at a default. A cell stands for those of other columns whose settings are the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from benchmarks.paper_tables.table import Table, wanting_a_path
from fedaudit.audit.attestation.chain import read_chain
from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import read_phases
from fedaudit.audit.settings.config import SIMULATED
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.resolve import resolve
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

# What statistics of tables read (audit/case/metrics.py)
KEYS = (
    "accuracy",
    "class_accuracy",
    "asr",
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
    "heard",
    "heard_slow",
    "clients",
    "clients_slow",
)


class Kept(BaseModel):
    """One finished cell."""

    model_config = ConfigDict(extra="forbid")

    column: str
    row: str
    seed: int
    rounds: int
    config: str  # digest of the next two
    written: dict[str, Any]  # by the table
    settings: dict[str, Any]  # what was simulated, every default written out
    data: str  # digest of the data set
    commit: str
    versions: dict[str, str]
    history: list[dict[str, Any]]


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without where the data lie."""
    federation = settings["federation"]
    source = {k: v for k, v in federation["dataset"].items() if k not in ("path", "download")}
    found = {k: settings[k] for k in ("seed", *SIMULATED) if k in settings}
    return found | {"federation": federation | {"dataset": source}}


def _written(table: Table, column: str, row: str, rounds: int, seed: int) -> dict[str, Any]:
    """What a table writes for a cell."""
    own = table.overrides(column, row, rounds=rounds, seed=seed, data=_aside())
    return _portable(merge(table.base, own))


def _aside() -> dict[str, dict[str, str]]:
    return {name: {"path": "anywhere"} for name in wanting_a_path()}


def _counts(found: Kept, table: Table) -> bool:
    """Whether its table still asks for what it ran."""
    written = _written(table, found.column, found.row, found.rounds, found.seed)
    if found.config != of_value([found.written, found.settings]) or found.written != written:
        return False
    cell = table.cell(found.column, found.row, rounds=found.rounds, seed=found.seed, data=_aside())
    return _same(found.settings, _portable(resolve(cell)), written)


def _same(then: Any, now: Any, written: Any) -> bool:
    """Equal, but for settings that are only on one side and that nobody wrote."""
    if not isinstance(then, Mapping) or not isinstance(now, Mapping):
        return bool(then == now)
    named = written if isinstance(written, Mapping) else {}
    return all(
        _same(then[k], now[k], named.get(k)) if k in then and k in now else k not in named
        for k in then.keys() | now.keys()
    )


def keep(table: Table, folder: Path, column: str, row: str, *, rounds: int, seed: int) -> Path:
    """Write the file of a cell that went to its end in the run folder `folder`; returns its path."""
    run = RunDir(folder)
    link = read_chain(folder).links["simulate"]
    history = [{k: _short(record[k]) for k in KEYS if k in record} for record in run.history()]
    settings = _portable(read_phases(run.path)["simulate"]["settings"])
    written = _written(table, column, row, rounds, seed)
    found = Kept(
        column=column,
        row=row,
        seed=seed,
        rounds=rounds,
        config=of_value([written, settings]),
        written=written,
        settings=settings,
        data=run.read_json(folder / "data.json")["data"],
        commit=link.aside.commit,
        versions=link.versions,
        history=history,
    )
    path = table.kept / column / row / f"seed-{seed}-r{rounds}.json"
    lines = ",\n  ".join(json.dumps(record) for record in found.history)
    head = found.model_dump_json(exclude={"history"}).removesuffix("}")
    durable.write(path, f'{head},\n "history": [\n  {lines}\n ]}}\n'.encode())
    return path


def _short(value: Any) -> Any:
    """To seven digits: a float32 has no more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return [_short(v) for v in value] if isinstance(value, list) else value


def read(table: Table) -> Iterator[Kept]:
    """The cells that still count, in the order of columns, rows, rounds and seeds; then those that are another
    column's cell too, because both write the same.

    Raises UserError where a file is no such cell, or lies under another's name.
    """
    kept = list(_files(table))
    yield from kept
    have = {(k.column, k.row, k.seed, k.rounds) for k in kept}
    for found in kept:
        for column in table.columns:
            if (column, found.row, found.seed, found.rounds) in have or found.row not in table.rows_of(column):
                continue
            if _written(table, column, found.row, found.rounds, found.seed) == found.written:
                yield found.model_copy(update={"column": column})


def _files(table: Table) -> Iterator[Kept]:
    for column in table.columns:
        for row in table.rows_of(column):
            for path in sorted((table.kept / column / row).glob("*.json")):
                found = _read(path)
                cell = (found.column, found.row, f"seed-{found.seed}-r{found.rounds}")
                if cell != (column, row, path.stem):
                    raise UserError(
                        f"{path}: holds the cell {'/'.join(cell)}", hint="give the file the name of its cell"
                    )
                if _counts(found, table):
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
