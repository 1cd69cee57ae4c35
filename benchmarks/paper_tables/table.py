"""A published table: the runs it describes and the numbers its paper prints, from one YAML file.

    title: ...            source: ...            note: ...
    claims: [{says: ..., column: NAME, above: ROW, below: ROW}]
    statistics: [accuracy_best]                  # names of audit/case/metrics.py; NAME@N: over N rounds
    base: {federation: ..., method: ...}         # a config; method.rounds is the paper's number
    columns: {NAME: {overrides: {...}, note: ...}}
    rows: {NAME: {method: {name: ..., ...}, published: {COLUMN: 75.27}, note: ...}}

A cell is base, then the column's overrides, then the row's overrides and method. `more_rounds` of a row
are added to the rounds, where clients are to be visited as often as by a method with phases of its own; a column
with `more_rounds: false` leaves them out and compares at equal rounds.
A published number belongs to the first statistic; {STATISTIC: number} gives several; nothing (`COLUMN:`)
means that the paper prints none. A row without a column's name is not in that column. `relative_to: ROW`
compares differences.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.spec import Group, Number, PluginSpec, Text
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.yaml import read_yaml

FOLDER = Path(__file__).parent / "tables"
# Nothing is attacked here: all data train, no message is kept, a killed run loses ten rounds at most
FRAME: dict[str, Any] = {
    "federation": {"holdout": {"auxiliary": 0, "reference": 0, "own": 0}},
    "record": [],
    "attacks": [],
}
Printed = Number | dict[str, Number] | None


class Claim(Group):
    """That a row is above another, by more than `least` of a statistic."""

    says: Text = Field(description="what is claimed, in a sentence")
    column: Text = Field(description="where it is looked at")
    above: Text = Field(description="the row that is said to be higher")
    below: Text = Field(description="the row it is compared with")
    statistic: Text = Field(default="accuracy_best", description="of which the difference is taken")
    least: Number = Field(default=0, description="the largest difference that would not bear the claim out")
    rounds: int | None = Field(default=None, ge=1, description="of the cells looked at; default: the paper's")
    equal: Literal["samples_used"] | None = Field(
        default=None, description="what both rows may have used up, at most as much as the one that used less"
    )
    printed: Number | None = Field(default=None, description="the difference that the paper prints")
    setting: str = Field(default="", description="what is not the paper's in these cells")


class Header(Group):
    """The file's own keys."""

    title: Text = Field(description="what the table shows")
    source: Text = Field(description="the paper and its table")
    note: str = Field(default="", description="what the paper leaves open, and what was assumed")
    statistics: tuple[Text, ...] = Field(default=("accuracy_best",), min_length=1)
    claims: tuple[Claim, ...] = Field(default=(), description="differences that are claimed")
    base: dict[str, Any] = Field(description="a config that all cells share")
    columns: dict[str, Any] = Field(description="NAME: {overrides, note}")
    rows: dict[str, Any] = Field(description="NAME: {method, published, relative_to, note}")


class Column(Group):
    """What one column changes in the base."""

    overrides: dict[str, Any] = Field(default={}, description="keys of a config")
    more_rounds: bool = Field(default=True, description="whether the rows' more_rounds are added here")
    note: str = ""


class Row(Group):
    """One method with its settings, and what the paper prints for it."""

    method: dict[str, Any] = Field(description="a name and settings")
    published: dict[str, Printed] = Field(description="COLUMN: number")
    overrides: dict[str, Any] = Field(default={}, description="keys of a config it needs changed")
    more_rounds: int = Field(default=0, ge=0, description="added to the rounds of the table")
    relative_to: str | None = Field(default=None, description="a row that is subtracted")
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A checked file. `name` is its place below runs/papers/."""

    name: str
    header: Header
    columns: Mapping[str, Column]
    rows: Mapping[str, Row]
    kept: Path  # where the finished cells lie that come with it

    @property
    def rounds(self) -> int:
        """The paper's number of rounds."""
        return int(self.header.base["method"]["rounds"])

    def rows_of(self, column: str) -> list[str]:
        return [name for name, row in self.rows.items() if column in row.published]

    def needed(self, column: str, rows: Iterable[str]) -> list[str]:
        """Those of `rows` that are in a column, and the rows they are compared with."""
        chosen = {row for row in rows if column in self.rows[row].published}
        chosen |= {ref for row in chosen if (ref := self.rows[row].relative_to)}
        return [row for row in self.rows if row in chosen]

    def published(self, column: str, row: str, statistic: str) -> float | None:
        """The printed number, in the unit it is printed in; None where there is none."""
        found = self.rows[row].published.get(column)
        if isinstance(found, Mapping):
            return found.get(statistic)
        return found if statistic == self.header.statistics[0] else None

    @property
    def base(self) -> dict[str, Any]:
        """What all cells share; no valid config before a row adds its method."""
        return merge(FRAME, self.header.base)

    def more_rounds(self, column: str, row: str) -> int:
        """Rounds that a row runs beyond those asked for, to visit clients as often as others do."""
        return self.rows[row].more_rounds if self.columns[column].more_rounds else 0

    def overrides(
        self,
        column: str,
        row: str,
        *,
        rounds: int,
        seed: int,
        data: Mapping[str, Mapping[str, Any]] | None = None,
        workers: str | int = "auto",
    ) -> dict[str, Any]:
        """What one run changes in the base. `data` adds settings, such as a path, to data sets by name.

        Raises UserError where the data set is read from a folder that nobody named.
        """
        found = merge(
            self.columns[column].overrides,
            self.rows[row].overrides,
            {
                "title": f"{self.header.title}: {column}, {row}"[:500],
                "seed": seed,
                "workers": workers,
                "method": {**self.rows[row].method, "rounds": rounds + self.more_rounds(column, row)},
            },
        )
        federation = merge(self.base, found).get("federation", {})
        spec = PluginSpec.model_validate(federation.get("dataset"))
        settings = (data or {}).get(spec.name, {})
        if "path" not in {**spec.settings, **settings} and spec.name in wanting_a_path():
            raise UserError(
                f"{self.where(column, row)}: {spec.name} is read from a folder of yours",
                hint=f"--data {spec.name}=FOLDER",
            )
        return merge(found, {"federation": {"dataset": {"name": spec.name, **spec.settings, **settings}}})

    def cell(self, column: str, row: str, **run: Any) -> Config:
        """The config of one run, `run` as of overrides(); raises UserError where it is not valid."""
        return overridden(self.base, self.overrides(column, row, **run), where=self.where(column, row))

    def where(self, column: str, row: str) -> str:
        """As errors name a cell."""
        return f"{self.name}, column {column}, row {row}"


def load_table(name: str) -> Table:
    """The table called `name` in benchmarks/paper_tables/tables/, or a file of the user's own."""
    own = name.endswith((".yaml", ".yml"))
    path = Path(name) if own else FOLDER / f"{known(name, tables(), 'table')}.yaml"
    header = validate(Header, read_yaml(path), path)
    columns = {k: validate(Column, v, f"{path}: columns.{k}") for k, v in header.columns.items()}
    rows = {k: validate(Row, v, f"{path}: rows.{k}") for k, v in header.rows.items()}
    for key in (*columns, *rows):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,60}", key):
            raise UserError(f"{path}: {key!r} cannot name a folder", hint="use letters, digits and . _ + -")
    for key, row in rows.items():
        for column, printed in row.published.items():
            known(column, columns, f"column (rows.{key}.published)")
            for statistic in printed if isinstance(printed, Mapping) else ():
                known(statistic, header.statistics, f"statistic (rows.{key}.published)")
        if row.relative_to is not None:
            known(row.relative_to, rows, f"row (rows.{key}.relative_to)")
            for column in row.published:
                known(column, rows[row.relative_to].published, f"column (rows.{row.relative_to})")
    method = header.base.get("method")
    if not isinstance(method, Mapping) or type(method.get("rounds")) is not int:
        raise UserError(f"{path}: base.method.rounds is missing", hint="write the paper's number of rounds")
    for claim in header.claims:
        known(claim.column, columns, "column (claims)")
        for side in (claim.above, claim.below):
            known(side, [r for r in rows if claim.column in rows[r].published], f"row of {claim.column} (claims)")
    kept = path.parent / "finished" / path.stem
    return Table(name=path.stem, header=header, columns=columns, rows=rows, kept=kept)


def tables() -> list[str]:
    """Names of the tables that come with the project."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def known(name: str, names: Iterable[str], what: str) -> str:
    """`name`, if it is one of `names`; else a UserError with the nearest one."""
    names = list(names)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        raise UserError(
            f"no {what} {name!r}", hint=f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(names)
        )
    return name


def wanting_a_path() -> list[str]:
    """Data sets that cannot be found or downloaded without being told where they lie."""
    found = []
    for name in catalog.names("datasets"):
        fields = getattr(catalog.load("datasets", name).Config, "__dataclass_fields__", {})
        field = fields.get("path")
        if field is not None and field.default is not None:
            found.append(name)
    return found
