"""Centre rows: a person's row from centres of k-means, or means and sums of groups, that come with counts.

A centre over one person is his row. One that is sent twice with counts n and n' that differ by one has moved by
him: n c - n' c' is his row, whoever else is in the group. Sums over n are such centres, where they are nearer to
public rows than as they stand.

Reads any array [k, columns] beside one [k] of whole numbers in the same message, and of all rows together
[columns] beside one number or one a column, whatever they are called.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Effort
from fedaudit.attacks.modality.table import find_spread
from fedaudit.attacks.summaries._row_statistics import Payload, RowStatistics
from fedaudit.fl.data.columns import Rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel


class CentreRows(RowStatistics):
    card = Card(
        title="Rows from centres with counts",
        source="arithmetic: a mean of one is the one, and two sums that differ by one differ by him",
        aim=Aim.RECONSTRUCTION,
        needs=("rows",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(),
        also_reads=(Kind.FEATURE_STATS, Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS),
        any_numbers=True,
        rounds="all",
        learns="the row of a person who is alone in a group, or who joined or left one",
        does_not_show="what is learned from centres of several people, and groups that one left as another came",
        control="",  # planted in measure()
        remedy="send no count, no centre of few people, or both with calibrated noise",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )
    found_in = "centres of one person, or that moved by one"

    def derive(self, sent: Sequence[Payload], public: Rows) -> Rows:
        found, before = list[Rows](), dict[str, tuple[Rows, Rows]]()
        for payload in sent:
            for name, centres, counts in _list_centres(payload, public):
                found.append(centres[(counts == 1).all(axis=1)])
                if name in before and before[name][0].shape == centres.shape:
                    earlier, held = before[name]
                    came = counts - held
                    moved = (np.abs(came) == 1).all(axis=1)
                    found += [(came * (counts * centres - held * earlier))[moved]]
                before[name] = centres, counts
        return np.concatenate([np.zeros((0, public.shape[1])), *found])

    def summarise(self, rows: Rows) -> Payload:
        return {"center": rows.mean(axis=0)[None], "count": np.array([len(rows)])}


def _list_centres(payload: Payload, public: Rows) -> list[tuple[str, Rows, Rows]]:
    """Arrays [k, F] that may be centres, or are sums, and what may be their counts, [k, 1] or one a column."""
    counts, width = [v for v in payload.values() if v.ndim < 2 and _are_counts(v)], public.shape[1]
    return [
        (f"{name} {i}", *_as_means(np.atleast_2d(v), np.reshape(n, (-1, many)), public))
        for name, v in payload.items()
        if v.ndim in (1, 2) and v.dtype.kind == "f" and v.shape[-1] == width and np.isfinite(v).all()
        for i, n in enumerate(counts)
        if (many := _count_columns(n, v))
    ]


def _as_means(values: NDArray[Any], counts: NDArray[Any], public: Rows) -> tuple[Rows, Rows]:
    """Means of groups, of means or of sums: whichever is nearer to the public's rows; and the counts."""
    means, held = np.asarray(values, np.float64), np.asarray(counts, np.float64)
    if not len(public):
        return means, held
    each, (middle, spread) = means / np.maximum(held, 1), (np.nanmean(public, axis=0), find_spread(public))
    near, nearer = (np.abs((v - middle) / spread).mean() for v in (means, each))
    return (each if nearer < near else means), held


def _count_columns(counts: NDArray[Any], centres: NDArray[Any]) -> int:
    """How many counts there are of each group: one, or one a column; 0 where these are no counts of theirs."""
    if centres.ndim == 2:
        return int(counts.shape == (len(centres),))
    return counts.size if counts.size in (1, centres.size) else 0


def _are_counts(v: NDArray[Any]) -> bool:
    return (
        v.dtype.kind in "iuf"
        and v.size > 0
        and bool(np.isfinite(v).all() and (v >= 0).all() and (v == v.round()).all())
    )
