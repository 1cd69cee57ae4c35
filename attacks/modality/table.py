"""Tables: how near claimed rows come to true ones, and what adversaries claim who read nothing of the clients.

Rows are float64 [N, F] in raw units, with their `Columns`. Claimed rows are matched to true ones without
replacement, by the least sum of Gower's distances (Hungarian method), and every blind adversary in the same way:
other people's rows come near once the best is picked, so no likeness of rows is worth anything by itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evidence import RowPair
from fedaudit.fl.data.columns import Column, Columns, Rows

EXACT = 1e-5  # deviations within which numbers without a step are the same


def read_columns(knowledge: Knowledge) -> Columns:
    """What numbers of a row stand for, as somebody said; else columns by number, in public rows' ranges."""
    if knowledge.columns is not None:
        return knowledge.columns
    public = np.asarray(knowledge.granted_auxiliary.x, np.float64)
    return Columns(columns=tuple(Column(name=f"column {i + 1}") for i in range(public.shape[1]))).learn(public)


@dataclass(frozen=True, kw_only=True)
class RowLikeness:
    """How near claimed rows come to true ones, [true rows] each, matched."""

    distance: NDArray[np.float64]  # Gower's; 1 of a row without a claim
    right: NDArray[np.bool_]  # [true rows, F] which values are the same
    claim: NDArray[np.int64]  # which one each was given; -1 for none

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Rows of which every value is right."""
        return np.asarray(self.right.all(1))


def match_rows(claims: Rows, truth: Rows, columns: Columns) -> NDArray[np.int64]:
    """Which claim each true row is given, -1 for none: no claim twice, the least sum of distances."""
    from scipy.optimize import linear_sum_assignment

    found = np.full(len(truth), -1, np.int64)
    if len(claims) and len(truth):
        cost = np.stack([columns.distance(row, claims) for row in truth])  # one by one: [t, c, F] may be large
        rows, places = linear_sum_assignment(cost)
        found[rows] = places
    return found


def compare_rows(claims: Rows, truth: Rows, columns: Columns, within: float | None = None) -> RowLikeness:
    """Claimed rows [k, F] matched to true ones [n, F].

    A value is right where it is the same category, or a number within half a step, or of a column without one
    within a hundred-thousandth of its deviation by public rows; `within`: or within so many deviations.
    """
    given, scale = match_rows(claims, truth, columns), np.array(columns.std or (1.0,) * len(columns))
    near = EXACT * scale if within is None else within * scale
    for i, column in enumerate(columns.columns):
        near[i] = 0 if column.kind == "category" else near[i] if within or not column.step else column.step / 2
    distance, right = np.ones(len(truth)), np.zeros(truth.shape, bool)
    for i, place in enumerate(given):
        if place >= 0:
            claimed, true = claims[place], truth[i]
            distance[i] = float(columns.distance(claimed, true))
            with np.errstate(invalid="ignore"):
                same = np.abs(claimed - true) <= near
            right[i] = same | (np.isnan(claimed) & np.isnan(true))
    return RowLikeness(distance=distance, right=right, claim=given)


def find_middle(public: Rows, columns: Columns) -> Rows:
    """[F] a row that can be: the median of public numbers, the commonest public level of each category."""
    row = np.full(len(columns), np.nan)
    for i, (column, values) in enumerate(zip(columns.columns, public.T, strict=True)):
        known = values[~np.isnan(values)]
        if len(known):
            is_level = column.kind == "category"
            row[i] = np.bincount(known.astype(np.int64)).argmax() if is_level else np.median(known)
    return row


def draw_rows(public: Rows, number: int, rng: np.random.Generator) -> Rows:
    """[number, F] of somebody who knows public rows alone: all of these [m, F] once, in random order.

    Where more are asked for than there are, the others have each column from a public row of its own.
    """
    drawn = [public[rng.permutation(len(public))[:number]]]
    while (left := number - sum(map(len, drawn))) > 0 and len(public):
        drawn.append(rng.permuted(public, axis=0)[:left])
    return np.concatenate(drawn)


def find_spread(public: Rows) -> Rows:
    """[F] the deviation of each column, 1 where it has none."""
    spread = np.nanstd(np.where(np.isnan(public).all(axis=0), 0.0, public), axis=0)
    return np.where(spread > 0, spread, 1.0)


def write_pair(name: str, true: Rows, claimed: Rows, columns: Columns) -> RowPair:
    """A true row [F] beside what was claimed of it, as a person reads them."""
    return RowPair(
        name=name,
        columns=columns.names,
        original=columns.write(true),
        claimed=columns.write(claimed),
        apart=tuple(columns.differences(claimed, true).tolist()),
    )
