"""CSV: your own table, a file of rows under a line of names, and a schema that says what its columns are.

    fedaudit init --from rows.csv        # writes a first schema, its guesses marked, and a config

A share of the rows, or of their owners, is held out for testing, always the same. No client holds these rows, so
they are public: columns are scaled by them, and have their levels and their ranges where the schema states none.
A level or a range of clients' rows would be a message of theirs.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.columns import SCALED_BY, Column, Columns, read_columns
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.table_file import TableFile, is_number, order, read_table, require_file
from fedaudit.fl.data.table_schema import TableSchema, name_schema, read_schema
from fedaudit.fl.runtime.errors import UserError, suggest_name
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.task import Task, load_task
from fedaudit.fl.tasks.regression import Regression
from fedaudit.fl.tasks.several import Several
from fedaudit.fl.tasks.survival import Survival

FEWEST = 20  # rows; of fewer nothing is measured
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
YES = {"1": 1, "yes": 1, "true": 1, "0": 0, "no": 0, "false": 0}


class CSV(Dataset):
    title = "A table of your own"
    source = ""

    @settings
    class Config:
        path: str = Field(description="the CSV file")
        schema: str | None = Field(
            default=None,
            description="file that says what its columns are; null: NAME.schema.yaml beside NAME.csv, which "
            "`fedaudit init --from NAME.csv` writes",
        )
        scaled_by: Literal["public", "clients"] = Field(default="public", description=SCALED_BY)
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the owners, or of the rows, that is held out for testing"
        )

    def load(self) -> Data:
        path, stated = Path(self.config.path).expanduser(), self._locate_schema()
        require_file(path)
        schema = read_schema(stated)
        table = read_table(path, schema.delimiter)
        schema = read_schema(stated, table.header)
        if len(table.rows) < FEWEST:
            raise UserError(
                f"{path} has {len(table.rows)} rows, expected {FEWEST} at least", hint="give more rows"
            )
        owner = _number_owners(table, schema)
        is_test = _hold_out(path, owner, self.config.test_fraction)
        given = _find_levels(table, schema, is_test)
        with name_schema(stated):
            columns = read_columns(given)
        _refuse_identifiers(table, schema, columns)
        x = np.stack([_read_values(table, c, schema.missing) for c in columns.columns], 1)
        task, classes, y = _read_labels(table, schema, is_test)
        everything = Arrays(x=x, y=y, owner=None if schema.owner is None else owner)
        train, test = (everything.take(np.flatnonzero(rows)) for rows in (~is_test, is_test))
        if task.has_classes and len(np.unique(train.y)) < max(2, len(np.unique(y))):
            lacking = classes[min(set(y.tolist()) - set(train.y.tolist()), default=0)]
            raise UserError(
                f"{path}: all rows with {schema.labels[0]} {lacking!r:.60} are held out, or all are of one class",
                hint="give more rows of each class, or another test_fraction",
            )
        return Data(
            train=train,
            test=test,
            classes=classes,
            task=task,
            columns=columns.scale_by(self.config.scaled_by, test.x),
            about="The rows of a CSV file.",
        )

    def list_files(self) -> Sequence[Path]:
        return list(dict.fromkeys([*super().list_files(), self._locate_schema()]))

    def _locate_schema(self) -> Path:
        stated = self.config.schema
        return Path(stated or Path(self.config.path).with_suffix(".schema.yaml")).expanduser()


def _number_owners(table: TableFile, schema: TableSchema) -> NDArray[np.int64]:
    """[N] whose each row is; each another's without a column that says so."""
    if schema.owner is None:
        return np.arange(len(table.rows))
    names = table.column(schema.owner)
    for name, line in zip(names, table.lines, strict=True):
        if name in schema.missing:
            raise UserError(
                f"{table.path}, line {line}: nobody owns the row, {schema.owner} is missing",
                hint="fill it in, or leave the row out",
            )
    return np.asarray(np.unique(names, return_inverse=True)[1], np.int64)


def _hold_out(path: Path, owner: NDArray[np.int64], fraction: float) -> NDArray[np.bool_]:
    """[N] the rows held out, of a share of the owners: it belongs to the data, and not to the run's seed."""
    people = np.unique(owner)
    chosen = np.random.RandomState(0).permutation(people)[: round(fraction * len(people))]
    is_test = np.isin(owner, chosen)
    if min(is_test.sum(), (~is_test).sum()) < 2:
        raise UserError(
            f"{path}: test_fraction {fraction:g} of {len(people)} owners leaves a part of fewer than two rows",
            hint="give more rows or owners, or another test_fraction",
        )
    return is_test


def _find_levels(table: TableFile, schema: TableSchema, is_public: NDArray[np.bool_]) -> dict[str, Any]:
    """The columns as the schema states them, with the levels of public rows where it states none."""
    given: dict[str, Any] = {}
    for name, fields in schema.columns.items():
        if fields.get("kind") == "category" and "levels" not in fields:
            entries = table.column(name)
            seen = {entries[i] for i in np.flatnonzero(is_public)} - set(schema.missing)
            if hidden := sorted(set(entries) - seen - set(schema.missing)):
                line = table.lines[entries.index(hidden[0])]
                raise UserError(
                    f"{table.path}, line {line}: {name} {hidden[0]!r:.60} stands in clients' rows alone, and the "
                    "schema states no levels",
                    hint=f"state all levels that there can be: {name}: {{kind: category, levels: [...]}}",
                )
            fields = {**fields, "levels": sorted(seen)}
        given[name] = fields
    return given


def _refuse_identifiers(table: TableFile, schema: TableSchema, columns: Columns) -> None:
    for column in columns.columns:
        entries = table.column(column.name)
        is_name = column.kind == "category" or all(map(str.isdecimal, entries))
        if is_name and len(set(entries)) == len(entries) and column.name not in schema.distinct:
            raise UserError(
                f"{table.path}: no two rows have the same {column.name}, as of an identifier",
                hint=f"identifiers: [{column.name}] leaves it out; distinct: [{column.name}] takes it as it is",
            )


def _read_values(table: TableFile, column: Column, missing: Sequence[str]) -> NDArray[np.float64]:
    """[N] a column in raw units, NaN where it is missing."""
    places = {level: i for i, level in enumerate(column.levels)}
    found = np.full(len(table.rows), np.nan)
    for i, (entry, line) in enumerate(_number_lines(table, column.name)):
        if entry in missing and entry not in places:
            if not column.missing:
                raise UserError(
                    f"{table.path}, line {line}: {column.name} is missing",
                    hint=f"say so in the schema: {column.name}: {{..., missing: true}}; or leave the row out",
                )
        elif column.kind == "category":
            if entry not in places:
                known = f"its levels: {', '.join(column.levels[:12])}"
                raise UserError(
                    f"{table.path}, line {line}: {column.name} is {entry!r:.60}, which is none of its levels",
                    hint=suggest_name(entry, column.levels, known),
                )
            found[i] = places[entry]
        else:
            found[i] = _read_number(table, column, entry, line)
    return found


def _read_number(table: TableFile, column: Column, entry: str, line: int) -> float:
    where = f"{table.path}, line {line}: {column.name} is {entry!r:.60}"
    if not is_number(entry) or not np.isfinite(float(entry)):
        comma = DECIMAL_COMMA.fullmatch(entry)
        hint = (
            f"write {entry.replace(',', '.')}" if comma else "kind: category, or one of `missing` in the schema"
        )
        raise UserError(f"{where}, expected a number", hint=hint)
    value = float(entry)
    if column.low is not None and column.high is not None and not column.low <= value <= column.high:
        raise UserError(
            f"{where}, and the schema says {column.low:g} to {column.high:g}",
            hint="correct the row, or low and high in the schema",
        )
    return value


def _read_labels(
    table: TableFile, schema: TableSchema, is_public: NDArray[np.bool_]
) -> tuple[Task, tuple[str, ...], NDArray[Any]]:
    task: Task = load_task(schema.task, "task of the schema")()
    wanted = {Survival: 2, Several: None}.get(type(task), 1)
    if task.by_place or (wanted is not None and len(schema.labels) != wanted):
        raise UserError(
            f"{table.path}: {len(schema.labels)} columns are the label, and {task!r} predicts {task.words}",
            hint="label: [time, event] of survival, one column of classify and regression",
        )
    for name in schema.labels:
        for entry, line in _number_lines(table, name):
            if entry in schema.missing:
                raise UserError(
                    f"{table.path}, line {line}: the label {name} is missing",
                    hint="leave the row out, or fill it in",
                )
    if task.has_classes:
        return task, *_number_classes(table, schema)
    if isinstance(task, Regression):
        y = _read_target(table, schema.labels[0])
        y = (y - y[is_public].mean()) / (y[is_public].std() or 1.0)
        return task, (), y.astype(np.float32)
    if isinstance(task, Survival):
        pair = [_read_target(table, schema.labels[0]), _read_yes(table, schema.labels[1])]
        if wrong := task.misfit(y := np.stack(pair, 1).astype(np.float32), len(table.rows)):
            raise UserError(f"{table.path}: labels have {wrong}", hint="label: [time, event], times from 0")
        return task, (), y
    return task, schema.labels, np.stack([_read_yes(table, name) for name in schema.labels], 1)


def _number_classes(table: TableFile, schema: TableSchema) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    name = schema.labels[0]
    entries = table.column(name)
    classes = tuple(map(str, schema.classes)) or tuple(sorted(set(entries), key=order))
    if len(classes) < 2:
        raise UserError(f"{table.path}: {name} is {classes[0]!r:.60} in all rows", hint="name another label")
    places = {label: i for i, label in enumerate(classes)}
    for entry, line in _number_lines(table, name):
        if entry not in places:
            raise UserError(
                f"{table.path}, line {line}: the label {name} is {entry!r:.60}, which is none of `classes`",
                hint=suggest_name(entry, classes, f"classes: {', '.join(classes[:12])}"),
            )
    if len(classes) > len(entries) // 4:
        raise UserError(
            f"{table.path}: {name} has {len(classes):,} different entries in {len(entries):,} rows, for classes",
            hint="task: regression, where it is a number",
        )
    return classes, np.array([places[entry] for entry in entries], np.int64)


def _read_target(table: TableFile, name: str) -> NDArray[np.float64]:
    column = Column(name=name)
    return np.array([_read_number(table, column, entry, line) for entry, line in _number_lines(table, name)])


def _read_yes(table: TableFile, name: str) -> NDArray[np.int64]:
    for entry, line in _number_lines(table, name):
        if entry.lower() not in YES:
            raise UserError(
                f"{table.path}, line {line}: {name} is {entry!r:.60}, expected 0 or 1", hint="or no and yes"
            )
    return np.array([YES[entry.lower()] for entry in table.column(name)], np.int64)


def _number_lines(table: TableFile, name: str) -> Iterator[tuple[str, int]]:
    return zip(table.column(name), table.lines, strict=True)
