"""Sums rows: a person's row from the sums of products that two rounds of a linear regression send.

One-shot and repeated linear regression, and covariances that are merged, send X'X, X'y and n. Two such sums that
differ by one person differ by the outer product of his row with itself, which is of rank one: its eigenvector
times the root of its eigenvalue is the row, but for the sign. A sum over one row is such a product itself.

Reads any square, symmetric array of any kind; with a constant or the label beside the columns every stretch of as
many numbers as a row has is claimed. Nothing is needed but the sums. Rounding leaves 16 bits of a row less what
n takes: a difference that is less of rank one than rounding explains is none.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Effort
from fedaudit.attacks.summaries._row_statistics import Payload, RowStatistics
from fedaudit.attacks.summaries.hidden_images import READ
from fedaudit.fl.data.columns import Rows
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

RANK_ONE = 1e-6  # of a difference's length, beyond which it is more than one row
ROUNDING = 8  # times the precision of the sums
LOUDEST = 0.02  # of a difference's length, from which on rounding hides what it is of


class SumsRows(RowStatistics):
    card = Card(
        title="Rows from sums of products",
        source="linear algebra: sums over people that differ by one differ by a matrix of rank one",
        aim=Aim.RECONSTRUCTION,
        needs=("rows",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(),
        also_reads=READ,
        any_numbers=True,
        rounds="all",
        learns="the row of a person by whom two sums of products differ, such as covariances",
        does_not_show="what can be learned from sums that differ by several people",
        control="",  # planted in measure()
        remedy="send sums once, over the same people, or with calibrated noise",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )
    found_in = "sums of products that differ by one person, or are of one"

    def derive(self, sent: Sequence[Payload], public: Rows) -> Rows:
        width = public.shape[1]
        before: dict[tuple[str, int], NDArray[Any]] = {}
        found = [np.zeros((0, width))]
        for payload in sent:
            for name, array in payload.items():
                if not is_of_products(array, width):
                    continue
                key = name, array.shape[0]
                found += _list_rows(array, before.get(key), width)
                before[key] = array
        return np.concatenate(found)

    def summarise(self, rows: Rows) -> Payload:
        return {"xx": rows.T @ rows, "n": np.array(len(rows))}


def is_of_products(array: NDArray[Any], width: int) -> bool:
    """Whether an array may be X'X of so many columns, and up to two more."""
    if array.ndim != 2 or array.dtype.kind != "f" or array.shape[0] != array.shape[1]:
        return False
    inside = width <= len(array) <= width + 2 and bool(np.isfinite(array).all())
    return inside and bool((np.diag(array) >= 0).all() and np.allclose(array, array.T, rtol=1e-4))


def _list_rows(array: NDArray[Any], before: NDArray[Any] | None, width: int) -> Iterator[Rows]:
    """Stretches of the row by which two sums differ; of a sum by itself, of the row that it is of."""
    whole = np.asarray(array, np.float64)
    eps = float(np.finfo(array.dtype).eps)
    differences = [whole] if before is None else [whole - np.asarray(before, np.float64), whole]
    for change in differences:
        length = float(np.linalg.norm(change))
        if not length:
            continue
        rounding = ROUNDING * eps * float(np.linalg.norm(whole)) / length
        values, vectors = np.linalg.eigh(change)
        most = int(np.abs(values).argmax())
        rest = float(np.linalg.norm(np.delete(values, most))) / length
        if rounding <= LOUDEST and rest <= RANK_ONE + rounding:
            row = np.sqrt(abs(values[most])) * vectors[:, most]
            yield np.lib.stride_tricks.sliding_window_view(row, width)
