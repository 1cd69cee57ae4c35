"""Raw rows: rows of a table that stand among numbers as they are, or scaled column by column.

Columns of a table have units of their own, so a row is told from chance by its columns, not by one correlation.
A column in which a window of F numbers agrees with a row counts log2((1 + H) / (1 + h)) bits, where h of H rows
that nobody sent share it. Of columns in which the same number is written only the one of most bits counts, since
zeros come together. What the row has in common with another of those rows beyond chance is taken away, since
columns of a table go together. A window is the row's that tells most there. A row is claimed by itself from
log2(windows x rows x readings) + 20 bits on. Windows at a common step are claimed together, each by its bits
beyond log2(rows) + 5, from log2(windows x readings) + 20 on; each step without a row takes one bit away, so that
what chance scatters over many numbers does not add up. Which k of F columns agree is a choice, since sorted
columns and quantiles hold numbers of everybody: its log2((F + 1) binomial(F, k)) bits are taken from each of
several windows, and of one by itself what is more than the 20.

Arrays are read in C and in F order, forwards and backwards, from every offset; flat ones by columns too, where
F or F + 1 divides their length. Columns may be written as they are, less the mean, by mean and deviation (of n or
n - 1), by least and range, from 0 or from -1 to 1, each of the sender's or the public's rows, and all of these
with the other sign. Not read: columns in another order, rows at another scale, with noise, or over several
arrays; of numbers that are common in a long array, those that fewest have.

Where nobody is held out, a sender's other rows stand in for them, and a row that agrees in every column counts
DIGITS for each number of more than three decimals, which others hardly have by chance.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.laid_out import Flat, count_windows, lay_out
from fedaudit.attacks.modality.table import find_spread

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]

MARGIN = 20.0  # bits: one claim by chance in a million messages
APART = 5.0  # bits beyond those that choose the row, which each of several windows must have
TOGETHER = 3  # different rows at a common step, at least
WIDEST = 4  # times as many numbers as a row has: the step between rows that are not known to be a matrix
EXACT = 1e-5  # of a column's deviation
HALF = 2e-3  # the same of two-byte numbers
WHOLE = 0.999  # between a number and what whole numbers make of it, rounded or cut off
DIGITS = 16.0  # bits
GRID = 1000  # a multiple of one in so many is a number that others have as well
FEWEST_SCALED = 3  # rows by which columns are scaled: of two, whosever, it makes -1 and 1, or 0 and 1
FEWEST = 2  # columns of a row that is looked for
MOST_READ = 1_000  # windows that are compared with a row that stands somewhere
MOST_ROWS = 2_000  # of a sender that are looked for
MOST_PAIRS = 2_000_000  # of numbers and rows that are compared for one reading
COLUMNS = 8  # of a row by which it is looked for where numbers are many, those that fewest have
MOST_ALIKE = 500  # of other people's rows that one is held against
CHUNK = 1 << 16
FAR = 1e100  # further apart than numbers of messages
BUCKETS = (1 << 22) - 3  # in which what rows and places have in common is added up first; a prime


class Reading(NamedTuple):
    """How columns may be written: a row is what is written times the factor, and the offset."""

    words: str
    offset: Values  # [F]
    factor: Values  # [F], none 0


class Limits(NamedTuple):
    """What could be told of a sender's rows among so many windows."""

    needed: float  # bits of one row by itself
    alone: float  # share of the rows that tell so many
    enough: int  # of the sender's rows one after the other that could be told, as most are; 0: no number of them


def count_bits(shared: NDArray[Any] | int, held: int) -> Values:
    """Bits of columns that so many of the held-out rows share."""
    return np.asarray(np.log2((1.0 + held) / (1.0 + np.asarray(shared, np.float64))))


def count_needed(windows: int, rows: int, readings: int) -> float:
    """Bits from which on one row by itself is no chance."""
    return float(np.log2(max(2, windows * rows * readings)) + MARGIN)


def list_readings(rows: Values, public: Values | None) -> list[Reading]:
    """Every way in which columns [n, F] may be written, the plain one first."""
    nothing, one = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    found = [Reading("as they are", nothing, one)]
    for whose, given in (("the sender's", rows), ("the public's", public)):
        if given is None or len(given) < FEWEST_SCALED:
            continue
        given = np.where(np.isnan(given).all(axis=0), 0.0, given)
        low, high, mean = (np.asarray(f(given, axis=0)) for f in (np.nanmin, np.nanmax, np.nanmean))
        half = (high - low) / 2
        found += [
            Reading(f"by {whose} mean and deviation", mean, np.nanstd(given, axis=0)),
            Reading(f"by {whose} mean and deviation", mean, np.nanstd(given, axis=0, ddof=1)),
            Reading(f"by {whose} least and range", low, 2 * half),
            Reading(f"by {whose} middle and half the range", low + half, half),
            Reading(f"less {whose} mean", mean, one),
        ]
    found = [r._replace(factor=np.where(r.factor > 0, r.factor, 1.0)) for r in found]
    turned = [
        Reading(f"{r.words}, with the other sign", r.offset + (r.factor if "least" in r.words else 0), -r.factor)
        for r in found
    ]
    once: dict[tuple[bytes, bytes], Reading] = {}
    for r in found + turned:
        once.setdefault((r.offset.tobytes(), r.factor.tobytes()), r)
    return [*once.values()]


@dataclass(frozen=True)
class RowFinder:
    """Looks for rows [n, F] of one sender; `public` and `held` [m, F] are rows of nobody who sent anything."""

    rows: NDArray[Any]
    public: NDArray[Any] | None = None
    held: NDArray[Any] | None = None
    windows: int = 0  # that are read in all, where this is a part of it
    spans: Sequence[slice] = ()  # numbers of each column, where one may be several, as a category is; () one each
    near: float = EXACT  # of a column's deviation, within which numbers agree

    def find(self, arrays: Sequence[NDArray[Any]]) -> dict[int, float]:
        """Which rows stand among these arrays, of any type and shape, and the bits by which each is told."""
        width, found = self._rows.shape[1], dict[int, float]()
        if width < FEWEST or not len(self._rows):
            return found
        needed = self.count_limits(arrays).needed
        for flat in lay_out(arrays, width):
            for k in range(len(self._readings)):
                for row, bits in self._find_in(flat, k, needed):
                    found[row] = max(bits, found.get(row, 0.0))
        return found

    def read_row(self, arrays: Sequence[NDArray[Any]], row: int) -> Values | None:
        """[F] what stands there of one row, as its own columns are: of all windows and readings the nearest."""
        wanted, nearest, found = self._rows[row], np.inf, None
        known = np.flatnonzero(~np.isnan(wanted))
        if not len(known):
            return None
        first = int(known[0])
        for flat in lay_out(arrays, len(wanted)):
            for reading in self._readings:
                value = flat.values * reading.factor[first] + reading.offset[first]
                near = np.argsort(np.abs(value - wanted[first]), kind="stable")[:MOST_READ]
                for step in (1, -1):
                    place = (near - step * first)[:, None] + step * np.arange(len(wanted))
                    place = place[((place >= 0) & (place < len(flat.values))).all(axis=1)]
                    given = flat.values[place] * reading.factor + reading.offset
                    apart = (np.abs(given - wanted) / self._spread)[:, known].max(axis=1, initial=0)
                    if len(apart) and np.nanmin(np.append(apart, np.inf)) < nearest:
                        best = int(np.nanargmin(apart))
                        nearest, found = float(apart[best]), np.where(np.isnan(wanted), np.nan, given[best])
        return found

    def count_limits(self, arrays: Iterable[NDArray[Any]] = ()) -> Limits:
        """What can be told of these rows among these arrays, or among as many windows as there are in all."""
        n, width = self._rows.shape
        if not n or width < FEWEST:
            return Limits(0.0, 0.0, 0)
        windows = max(self.windows, count_windows(arrays, width))
        needed = count_needed(windows, n, len(self._readings))
        bits = self.weigh_rows()
        together, each = needed - np.log2(n), float(np.median(bits) - self._choices[-1] - np.log2(n) - APART)
        several = max(TOGETHER, int(np.ceil(together / each))) if each > 0 else 0
        alone = float((bits >= needed).mean())
        return Limits(needed, alone, 1 if alone == 1 else several if several <= n else 0)

    def weigh_rows(self) -> Values:
        """[n] bits by which each row would be told from chance, if it stood there by itself."""
        n, width = self._rows.shape
        grade, each_row = self._grade(0, np.dtype(np.float64)), np.arange(n)
        bits, _ = _score(grade.written.ravel(), grade, self._parts, each_row, width * each_row, 1)
        return bits - self._find_alike(grade, self._readings[0].factor, each_row)

    @cached_property
    def _rows(self) -> Values:
        return np.asarray(self.rows[:MOST_ROWS], np.float64)

    @cached_property
    def _public(self) -> Values | None:
        return None if self.public is None else np.asarray(self.public, np.float64)

    @cached_property
    def _readings(self) -> list[Reading]:
        return list_readings(np.asarray(self.rows, np.float64), self._public)

    @cached_property
    def _spread(self) -> Values:
        given = self._rows if self._public is None or len(self._public) < 2 else self._public
        return find_spread(given)

    @cached_property
    def _beside(self) -> Values:
        """[m, F] rows by whom a column is shared: those of nobody, or the sender's own."""
        return np.asarray(self.held, np.float64) if self._has_held else self._rows

    @cached_property
    def _columns(self) -> Values:
        return np.sort(self._beside.T, axis=1)

    @property
    def _has_held(self) -> bool:
        return self.held is not None and len(self.held) > 0

    @cached_property
    def _parts(self) -> "_Parts":
        width = self._rows.shape[1]
        firsts = np.array([s.start for s in self.spans] if self.spans else range(width))
        return _Parts(firsts, np.diff(firsts, append=width))

    @cached_property
    def _choices(self) -> Values:
        """[F + 1] bits that it takes to say which columns agree, by how many do."""
        width = len(self._parts.firsts)
        return np.log2((width + 1) * scipy.special.comb(width, np.arange(width + 1)))

    @cached_property
    def _grades(self) -> "dict[tuple[int, np.dtype[Any]], _Grade]":
        return {}

    def _grade(self, reading: int, dtype: np.dtype[Any]) -> "_Grade":
        """What is written of each row by this reading, how exactly, and what each column tells."""
        key = reading, dtype if dtype.kind == "f" else np.dtype(np.int64)
        if key not in self._grades:
            self._grades[key] = self._make_grade(self._readings[reading], dtype)
        return self._grades[key]

    def _make_grade(self, reading: Reading, dtype: np.dtype[Any]) -> "_Grade":
        x, factor = self._rows, reading.factor
        written = (x - reading.offset) / factor
        if dtype.kind == "f":
            near = (HALF if dtype.itemsize == 2 else self.near) * self._spread / np.abs(factor)
            reach = np.maximum(near, np.finfo(dtype).eps * np.abs(written))
        else:
            reach = np.full(x.shape, WHOLE)
        ordered, own = self._columns, not self._has_held
        shared = np.empty(x.shape)
        for j, column in enumerate(ordered):
            wide = reach[:, j] * abs(factor[j])
            shared[:, j] = np.searchsorted(column, x[:, j] + wide, side="right")
            shared[:, j] -= np.searchsorted(column, x[:, j] - wide)
        bits = np.where(np.isnan(x), 0.0, count_bits(shared - own, ordered.shape[1] - own))
        self._tell_categories(bits)
        return _Grade(written, reach, bits, self._count_digits(bits) if own else bits)

    def _tell_categories(self, bits: Values) -> None:
        """Columns of several numbers tell what all of these tell together, at the number that tells most."""
        own, parts = not self._has_held, self._parts
        for first, size in zip(parts.firsts[parts.sizes > 1], parts.sizes[parts.sizes > 1], strict=True):
            numbers = slice(first, first + size)
            both = np.concatenate([self._rows[:, numbers], self._beside[:, numbers]])
            _, which = np.unique(both, axis=0, return_inverse=True)
            mine, theirs = np.split(which.ravel(), [len(self._rows)])
            shared = np.bincount(theirs, minlength=which.max() + 1)[mine]
            most = first + bits[:, numbers].argmax(axis=1)
            bits[:, numbers] = 0
            bits[np.arange(len(mine)), most] = count_bits(shared - own, len(theirs) - own)

    def _count_digits(self, bits: Values) -> Values:
        scaled = self._rows * GRID
        is_odd = np.abs(scaled - np.rint(scaled)) > 1e-3 * np.maximum(1, np.abs(scaled) * 1e-2)
        return np.where(is_odd & (bits > 0), np.maximum(bits, DIGITS), bits)

    def _find_alike(self, grade: "_Grade", factor: Values, row: Numbers) -> Values:
        """Of each row [p] the bits that somebody else's has in common with it, beyond chance."""
        whose, which = np.unique(row, return_inverse=True)
        given = self._beside[:MOST_ALIKE]
        alike = np.zeros(len(whose))
        for k, i in enumerate(whose.tolist()):
            agrees = self._parts.join(np.abs(given - self._rows[i]) <= grade.reach[i] * np.abs(factor))
            told = (agrees @ grade.bits[i])[~agrees.all(axis=1)]
            alike[k] = max(0.0, told.max(initial=0.0) - np.log2(1 + len(told)))
        return alike[which]

    def _find_in(self, flat: Flat, reading: int, needed: float) -> Iterator[tuple[int, float]]:
        grade, n = self._grade(reading, flat.dtype), len(self._rows)
        apart = np.log2(n) + APART
        matched, column, place = _list_matches(flat, grade)
        for step in (1, -1):
            start = place - step * column
            last = start + step * (flat.width - 1)
            inside = (np.minimum(start, last) >= 0) & (np.maximum(start, last) < len(flat.values))
            some, start = matched[inside], start[inside]
            told = grade.whole[some, column[inside]]
            row, start = _choose_pairs(some, start, told, len(flat.values), min(apart, needed))
            bits, agreed = _score(flat.values, grade, self._parts, row, start, step)
            likely = np.flatnonzero(bits > apart)
            row, start, choice = row[likely], start[likely], self._choices[agreed[likely]]
            bits = bits[likely] - self._find_alike(grade, self._readings[reading].factor, row)
            best = _choose_best(start, bits - choice)
            row, start, bits, choice = row[best], start[best], bits[best], choice[best]
            alone = bits - np.maximum(choice - MARGIN, 0) >= needed
            yield from zip(row[alone].tolist(), bits[alone].tolist(), strict=True)
            bits = bits - choice
            near = bits > apart
            together = _gather(flat, row[near], start[near], bits[near] - apart, needed - np.log2(n))
            yield from ((i, extra + apart) for i, extra in together)


class _Parts(NamedTuple):
    """Which numbers of a row are one column's."""

    firsts: Numbers  # [columns]
    sizes: Numbers  # [columns]

    def join(self, agrees: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[p, F] whether all numbers of a column agree, for each of them."""
        if len(self.firsts) == agrees.shape[1]:
            return agrees
        return np.repeat(np.asarray(np.logical_and.reduceat(agrees, self.firsts, axis=1)), self.sizes, axis=1)

    def set_apart(self, window: Values) -> Values:
        """[p, F] numbers that are never the same by themselves, where a column is several of them."""
        several = np.repeat(self.sizes > 1, self.sizes)
        return np.where(several, FAR * (2 + np.arange(window.shape[1])), window) if several.any() else window


class _Grade(NamedTuple):
    written: Values  # [n, F]
    reach: Values  # [n, F], within which a number is what is written
    bits: Values  # [n, F]
    whole: Values  # [n, F], where a row agrees in every column


def _list_matches(flat: Flat, grade: _Grade) -> tuple[Numbers, Numbers, Numbers]:
    """Rows, columns and where among the numbers these are written."""
    n, _ = grade.written.shape
    low = np.searchsorted(flat.ordered, grade.written - grade.reach)
    many = np.searchsorted(flat.ordered, grade.written + grade.reach, side="right") - low
    many[grade.bits <= 0] = 0
    if many.sum() > MOST_PAIRS:  # by the columns that fewest numbers have
        rank = np.argsort(np.argsort(np.where(many > 0, many, np.iinfo(np.int64).max), axis=1), axis=1)
        many[rank >= COLUMNS] = 0
        many[many > MOST_PAIRS // (n * COLUMNS)] = 0
    rows, columns = np.nonzero(many)
    several = many[rows, columns]
    first = np.repeat(low[rows, columns] - np.cumsum(several) + several, several)
    place = flat.order[first + np.arange(several.sum())]
    return np.repeat(rows, several), np.repeat(columns, several), place


def _choose_pairs(row: Numbers, start: Numbers, bits: Values, size: int, least: float) -> tuple[Numbers, Numbers]:
    """Rows and where they begin, each pair once, where columns that agree tell more than the least."""
    keys = row * size + start
    bucket = keys % BUCKETS
    near = np.bincount(bucket, bits, minlength=1)[bucket] > least
    keys, which = np.unique(keys[near], return_inverse=True)
    keys = keys[np.bincount(which, bits[near], minlength=len(keys)) > least]
    return keys // size, keys % size


def _score(
    values: Values, grade: _Grade, parts: _Parts, row: Numbers, start: Numbers, step: int
) -> tuple[Values, Numbers]:
    """[p] Bits of the columns in which windows agree with rows, each written number once; and how many agree."""
    width = grade.written.shape[1]
    found, agreed = np.zeros(len(row)), np.zeros(len(row), np.int64)
    for begin in range(0, len(row), CHUNK):  # never empty
        some = slice(begin, begin + CHUNK)
        i = row[some]
        window = np.asarray(values[start[some, None] + step * np.arange(width)])
        agrees = parts.join(np.asarray(np.abs(window - grade.written[i]) <= grade.reach[i]))
        window = parts.set_apart(window)
        bits = np.where(agrees.all(axis=1, keepdims=True), grade.whole[i], grade.bits[i]) * agrees
        order = np.argsort(window, axis=1, kind="stable")
        ordered, bits, reach = (np.take_along_axis(v, order, axis=1) for v in (window, bits, grade.reach[i]))
        new = np.ones(ordered.shape, bool)  # none of NaN, which is last and has no bits
        new[:, 1:] = np.diff(ordered, axis=1) > np.maximum(reach[:, 1:], reach[:, :-1])
        best = np.zeros(ordered.size)
        (firsts,) = np.nonzero(new.ravel())
        best[firsts] = np.maximum.reduceat(bits.ravel(), firsts)
        found[some] = best.reshape(ordered.shape).sum(axis=1)
        agreed[some] = agrees[:, parts.firsts].sum(axis=1)
    return found, agreed


def _choose_best(start: Numbers, bits: Values) -> Numbers:
    """Of the rows that may stand in a window those that tell most; copies of each other tell the same."""
    order = np.lexsort((-bits, start))
    is_first = np.diff(start[order], prepend=-1) != 0
    most = bits[order][is_first][np.cumsum(is_first) - 1]
    return np.asarray(order[bits[order] >= most - 1e-9], np.int64)


def _gather(
    flat: Flat, row: Numbers, start: Numbers, beyond: Values, needed: float
) -> Iterator[tuple[int, float]]:
    """Rows that stand at a common step and tell enough together, and what each has beyond the common part."""
    part = np.searchsorted(flat.begins, start, side="right") - 1
    gaps = np.diff(np.unique(start))
    gaps = gaps[gaps < WIDEST * flat.width]
    common = int(np.bincount(gaps).argmax()) if len(gaps) else 0
    known = [np.full(len(row), step) for step in sorted({flat.width, flat.width + 1, common})]
    for steps in (*known, flat.steps[part]):
        for block in _split_blocks(part, start, steps):
            by = block[np.argsort(-beyond[block], kind="stable")]
            once = np.sort(by[np.unique(row[by], return_index=True)[1]])  # of each row the window that tells most
            yield from _find_stretches(row[once], start[once] // steps[once], beyond[once], needed)


def _split_blocks(part: Numbers, start: Numbers, steps: Numbers) -> list[Numbers]:
    """Windows of one array at a common step and phase."""
    (some,) = np.nonzero(steps > 0)
    keys = np.stack([part[some], start[some] % steps[some]], axis=1)
    _, which = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel()))[:-1]
    return [some[b] for b in np.split(order, ends) if len(b) >= TOGETHER]


def _find_stretches(row: Numbers, at: Numbers, beyond: Values, needed: float) -> Iterator[tuple[int, float]]:
    """Of windows in their order [k], at places [k], stretches that tell enough less one bit a step without a row.

    No window counts more than its share of what is needed, so that one row does not carry its neighbours.
    """
    sum_, first, most = 0.0, 0, 1.001 * needed / TOGETHER
    best, last = 0.0, -1
    for k in range(len(row) + 1):
        gap = float(at[k] - at[k - 1] - 1) if 0 < k < len(row) else 0.0
        if k == len(row) or sum_ - gap <= 0:
            if last - first + 1 >= TOGETHER and best >= needed:
                yield from zip(row[first : last + 1].tolist(), beyond[first : last + 1].tolist(), strict=True)
            sum_, first, best, last, gap = 0.0, k, 0.0, k - 1, 0.0
        if k < len(row):
            sum_ += min(float(beyond[k]), most) - gap
            if sum_ >= best:
                best, last = sum_, k
