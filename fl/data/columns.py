"""Columns of a table: what each number of a row means, how a network is given it, and how far rows are apart.

A row x is float64 [F] in raw units: a number as it was measured, a category as its place in `levels`, and NaN
where it is missing. A network is given numbers less their mean over their deviation, categories one-hot, and
behind a column that may be missing a flag that it is. Mean, deviation and range are those of public rows or of a
schema. Of clients' rows they are a message of theirs, feature_stats, which a federation sends before its rounds.

The distance is Gower's (A general coefficient of similarity, Biometrics 27, 1971), as a distance: the mean over
columns of |difference| / (high - low) for numbers and of 0 or 1 for categories. Changed: a difference counts 1 at
most, since what an attack claims may lie outside of the range; a value that is missing in one row alone counts 1
and in both 0, where Gower leaves such columns out, since a claim that leaves a value out is no nearer for it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import check_settings

Rows = NDArray[np.float64]  # [n, F] in raw units
Inputs = NDArray[np.float32]  # [n, width] as a network is given them
Stats = Mapping[str, NDArray[np.float64]]  # name of STATS -> [F]

MOST_LEVELS = 1000  # of a category; more are names or numbers
SCALED_BY = (
    "whose rows say mean, deviation and range of columns: those held out for testing, or clients', who then "
    "send what theirs are like"
)
STATS = ("count", "mean", "deviation", "least", "greatest")
DIGITS = 6  # that are written of a number without a step


@dataclass(frozen=True, kw_only=True)
class Column:
    """What one number of a row means."""

    name: str
    kind: Literal["number", "category"] = "number"
    unit: str = ""  # of a number, as it is written behind it
    step: float | None = None  # numbers are multiples of it, from `low` or else from 0; null: of none
    low: float | None = None  # the range of a number, both or neither; null: that of public rows
    high: float | None = None
    levels: tuple[str, ...] = ()  # of a category, of which a row has the place
    sensitive: bool = False  # whether it harms a person that somebody learns it
    missing: bool = False  # whether rows may lack it

    def __post_init__(self) -> None:
        if wrong := self._explain():
            raise UserError(f"column {self.name!r} {wrong}", hint="a number has low and high, a category levels")

    def _explain(self) -> str:
        if self.kind == "category":
            if not self.levels or len(set(self.levels)) < len(self.levels):
                return "is a category, and its levels are missing or repeat themselves"
            if len(self.levels) > MOST_LEVELS:
                return f"is a category of {len(self.levels):,} levels, and at most {MOST_LEVELS:,} are read"
            given = (self.unit, self.step, self.low, self.high)
            return "is a category, and has a unit, a step or a range" if given != ("", None, None, None) else ""
        if self.levels:
            return "is a number, and has levels"
        if self.step is not None and not 0 < self.step < math.inf:
            return f"has a step of {self.step:g}, expected more than 0"
        if (self.low is None) != (self.high is None):
            return "has one end of its range, expected low and high or neither"
        if self.low is not None and self.high is not None and not -math.inf < self.low <= self.high < math.inf:
            return f"is from {self.low:g} to {self.high:g}, expected finite numbers, the least first"
        return ""

    @property
    def width(self) -> int:
        """How many of a network's inputs it makes."""
        return (len(self.levels) or 1) + self.missing

    def snap(self, values: Rows) -> Rows:
        """Values [n] on its grid; those of a number without a step as they are."""
        if self.kind == "category":
            return np.where(np.isnan(values), values, np.clip(np.round(values), 0, len(self.levels) - 1))
        if self.step is None:
            return values
        start = 0.0 if self.low is None else self.low
        places = len(f"{self.step:.12f}".rstrip("0").partition(".")[2])
        return np.asarray(np.round(start + np.round((values - start) / self.step) * self.step, places))

    def write(self, value: float) -> str:
        """A value as a person reads it: "52 years", "ward 3" or "missing"."""
        if math.isnan(value):
            return "missing"
        if self.kind == "category":
            return self.levels[int(np.clip(round(value), 0, len(self.levels) - 1))]
        number = float(self.snap(np.array([value]))[0])
        text = f"{number:.{DIGITS}g}" if self.step is None else f"{number:.12g}"
        return f"{text} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The schema of a table: its columns, and how a network's inputs are scaled."""

    columns: tuple[Column, ...]
    mean: tuple[float, ...] = ()  # of each column, 0 of a category; empty: not known yet
    std: tuple[float, ...] = ()
    by: Literal["public", "clients"] = "public"  # whose rows say mean, deviation and range; clients send theirs

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        if not names or len(set(names)) < len(names):
            twice = next((name for name in names if names.count(name) > 1), "")
            raise UserError(
                f"a table has two columns {twice!r}" if twice else "a table has no columns",
                hint="give every column a name of its own",
            )

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def width(self) -> int:
        """How many inputs a network has."""
        return sum(c.width for c in self.columns)

    @property
    def spans(self) -> tuple[slice, ...]:
        """Where in a network's inputs each column stands; the last of one that may be missing is its flag."""
        ends = np.cumsum([c.width for c in self.columns]).tolist()
        return tuple(slice(end - c.width, end) for c, end in zip(self.columns, ends, strict=True))

    def learn(self, public: Rows) -> "Columns":
        """With ranges that are not declared, mean and deviation of public rows [m, F]."""
        if not len(public):
            raise UserError("columns are scaled by public rows, and there are none", hint="hold some rows out")
        return self.pool([self.describe(public)])

    def scale_by(self, by: Literal["public", "clients"], public: Rows) -> "Columns":
        """Scaled by public rows, or to be scaled by what clients send."""
        return self.learn(public) if by == "public" else replace(self, by=by)

    def describe(self, x: Rows) -> Stats:
        """What scaling needs of somebody's rows [n, F], an array [F] each; 0 of categories, and of no value."""
        found = {name: np.zeros(len(self)) for name in STATS}
        for i, (column, values) in enumerate(zip(self.columns, x.T, strict=True)):
            known = values[~np.isnan(values)]
            if column.kind == "number" and len(known):
                told = (len(known), known.mean(), known.std(), known.min(), known.max())
                for name, value in zip(STATS, told, strict=True):
                    found[name][i] = value
        return found

    def pool(self, told: Sequence[Stats]) -> "Columns":
        """With the mean and deviation, and the ranges that are not declared, that all these tell together."""
        found = pool_stats(told)
        columns = tuple(
            replace(c, low=float(a), high=float(b)) if c.kind == "number" and n and c.low is None else c
            for c, n, a, b in zip(self.columns, found["count"], found["least"], found["greatest"], strict=True)
        )
        spreads = np.where(found["deviation"] > 0, found["deviation"], 1.0)
        return replace(self, columns=columns, mean=tuple(found["mean"].tolist()), std=tuple(spreads.tolist()))

    def misfit(self, x: NDArray[Any]) -> str:
        """What is wrong with rows, as the end of a sentence; empty where they are right."""
        if x.dtype != np.float64 or x.ndim != 2 or x.shape[1] != len(self):
            return f"{x.dtype} {list(x.shape)}, expected float64 [N, {len(self)}], a number a column"
        for column, values in zip(self.columns, x.T, strict=True):
            absent = np.isnan(values)
            if absent.any() and not column.missing:
                return f"without {column.name!r} in row {int(absent.argmax())}, which may not be missing"
            known = values[~absent]
            if not np.isfinite(known).all():
                return f"infinite in column {column.name!r}"
            if column.kind == "category" and not np.isin(known, np.arange(len(column.levels))).all():
                return f"with places in column {column.name!r} that are none of its {len(column.levels)} levels"
        return ""

    def model_input(self, x: Rows) -> Inputs:
        """[n, width] what a network is given of rows [n, F]; a missing value is 0 in all but its flag."""
        mean, std = self._scale()
        out = np.zeros((len(x), self.width))
        for i, (column, span) in enumerate(zip(self.columns, self.spans, strict=True)):
            values, part = x[:, i], out[:, span]
            known = ~np.isnan(values)
            if column.kind == "category":
                part[np.flatnonzero(known), values[known].astype(np.int64)] = 1
            else:
                part[known, 0] = (values[known] - mean[i]) / std[i]
            if column.missing:
                part[:, -1] = ~known
        return out.astype(np.float32)

    def read_input(self, inputs: NDArray[np.floating[Any]]) -> Rows:
        """[n, F] rows of a network's inputs [n, width], the inverse: categories are the largest of theirs.

        Numbers are not put on their grid; `snap` does that.
        """
        mean, std = self._scale()
        out = np.empty((len(inputs), len(self)))
        for i, (column, span) in enumerate(zip(self.columns, self.spans, strict=True)):
            part = inputs[:, span].astype(np.float64)
            flag, values = (part[:, -1], part[:, :-1]) if column.missing else (np.zeros(len(part)), part)
            found = values.argmax(1) if column.kind == "category" else values[:, 0] * std[i] + mean[i]
            out[:, i] = np.where(flag > 0.5, np.nan, found)
        return out

    def snap(self, x: Rows) -> Rows:
        """Rows [n, F] on the grids of their columns."""
        return np.stack([c.snap(v) for c, v in zip(self.columns, x.T, strict=True)], 1) if len(x) else x

    def write(self, row: Rows) -> tuple[str, ...]:
        """The values of one row [F] as a person reads them, with their units."""
        return tuple(c.write(float(v)) for c, v in zip(self.columns, row, strict=True))

    def differences(self, a: Rows, b: Rows) -> Rows:
        """[..., F] how far two values of each column are apart, from 0 to 1, of rows [..., F] that broadcast."""
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape)
        for i, column in enumerate(self.columns):
            one, other = a[..., i], b[..., i]
            absent = np.isnan(one) | np.isnan(other)
            if (
                column.kind == "category"
                or column.low is None
                or column.high is None
                or column.low == column.high
            ):
                apart = (one != other).astype(np.float64)
            else:
                apart = np.minimum(np.abs(one - other) / (column.high - column.low), 1)
            out[..., i] = np.where(absent, np.isnan(one) != np.isnan(other), apart)
        return out

    def distance(self, a: Rows, b: Rows) -> Rows:
        """[...] Gower's distance of rows [..., F] that broadcast: 0 of the same row, 1 at most."""
        return np.asarray(self.differences(a, b).mean(-1))

    def _scale(self) -> tuple[Sequence[float], Sequence[float]]:
        if len(self.mean) != len(self) or len(self.std) != len(self):
            raise ValueError("columns are scaled once they learnt from public rows")
        return self.mean, self.std


def pool_stats(told: Sequence[Stats]) -> Stats:
    """What several tell of their rows, as one would of all rows together."""
    count, mean, deviation, least, greatest = (np.stack([one[name] for one in told]) for name in STATS)
    total = count.sum(0)
    means = (count * mean).sum(0) / np.maximum(total, 1)
    spreads = np.sqrt((count * (deviation**2 + (mean - means) ** 2)).sum(0) / np.maximum(total, 1))
    low, high = np.where(count > 0, least, np.inf).min(0), np.where(count > 0, greatest, -np.inf).max(0)
    ends = (np.where(total > 0, end, 0.0) for end in (low, high))
    return dict(zip(STATS, (total, means, spreads, *ends), strict=True))


def read_columns(given: Mapping[Any, Any], where: str = "columns") -> Columns:
    """Columns of a schema: name -> what it is. Raises UserError, with the path of what is wrong."""
    found = list[Column]()
    for name, fields in given.items():
        place = f"{where}.{name}"
        if not isinstance(fields, Mapping):
            raise UserError(
                f"{place} must be a group of keys, got {fields!r}", hint="age: {kind: number, step: 1}"
            )
        levels = fields.get("levels")
        if isinstance(levels, list):  # 1 is a level as it stands in a file
            if wrong := [
                level for level in levels if isinstance(level, bool) or not isinstance(level, str | int)
            ]:
                raise UserError(
                    f"{place}.levels has {wrong[0]!r}, expected text", hint=f'write "{wrong[0]}" in quotes'
                )
            fields = {**fields, "levels": [str(level) for level in levels]}
        found.append(check_settings(Column, {"name": str(name), **fields}, place))
    return Columns(columns=tuple(found))
