"""Centre rows: a person's row from the centres of k-means, or means of groups, that come with their counts.

A centre over one person is his row. One that is sent twice with counts n and n' that differ by one has moved by
him: n c - n' c' is his row, whoever else is in the group.

Reads any array [k, columns] beside one [k] of whole numbers in the same message, whatever they are called.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Effort
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
        also_reads=(Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS),
        any_numbers=True,
        rounds="all",
        learns="the row of a person who is alone in a group, or who joined or left one",
        does_not_show="what is learned from centres of several people, and groups that one left as another came",
        control="",  # planted in measure()
        remedy="send no count, no centre of few people, or both with calibrated noise",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )
    found_in = "centres of one person, or that moved by one"

    def derive(self, sent: Sequence[Payload], width: int) -> Rows:
        found, before = list[Rows](), dict[str, tuple[Rows, Rows]]()
        for payload in sent:
            for name, centres, counts in _list_centres(payload, width):
                found.append(centres[counts == 1])
                if name in before and before[name][0].shape == centres.shape:
                    earlier, held = before[name]
                    moved = np.abs(counts - held) == 1
                    change = counts[:, None] * centres - held[:, None] * earlier
                    found.append(((counts - held)[:, None] * change)[moved])
                before[name] = centres, counts
        return np.concatenate([np.zeros((0, width)), *found])

    def summarise(self, rows: Rows) -> Payload:
        return {"center": rows.mean(axis=0)[None], "count": np.array([len(rows)])}


def _list_centres(payload: Payload, width: int) -> list[tuple[str, Rows, Rows]]:
    """Arrays that may be centres, and what may be their counts."""
    counts = [v for v in payload.values() if v.ndim == 1 and _are_counts(v)]
    return [
        (f"{name} {i}", np.asarray(v, np.float64), np.asarray(n, np.float64))
        for name, v in payload.items()
        if v.ndim == 2 and v.dtype.kind == "f" and v.shape[1] == width and np.isfinite(v).all()
        for i, n in enumerate(counts)
        if len(n) == len(v)
    ]


def _are_counts(v: NDArray[Any]) -> bool:
    return (
        v.dtype.kind in "iuf"
        and v.size > 0
        and bool(np.isfinite(v).all() and (v >= 0).all() and (v == v.round()).all())
    )
