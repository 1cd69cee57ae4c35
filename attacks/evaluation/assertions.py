"""Claims in words: what attacks that tell of clients assert, where nobody can hold it against the truth."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Assertion

OF_CLASSES = "which classes it owns"
OF_COUNTS = "how many examples of each class it owns"
MOST = 20  # classes that one sentence names


def by_client(
    clients: Iterable[int], rows: Iterable[Any], words: Callable[[Any], str], check: str
) -> list[Assertion]:
    """One assertion for each client of whom `words` finds something to say; of several the last, in order.

    Of sums none: they tell of no client in particular.
    """
    told = {int(k): words(row) for k, row in zip(clients, rows, strict=True) if k != SEVERAL}
    return [Assertion(client=k, says=says, check=check) for k, says in sorted(told.items()) if says]


def name_classes(present: NDArray[np.bool_], classes: Sequence[str]) -> str:
    """A set of classes [C], "classes two and five"; empty for none."""
    names = [classes[c] for c in np.flatnonzero(present).tolist()]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    *first, last = names[:MOST] or [""]
    listed = f"{', '.join(first)} and {last}" if first and not more else ", ".join([*first, last])
    return f"class{'es' if len(names) > 1 else ''} {listed}{more}" if names else ""


def format_counts(counts: NDArray[np.int64], classes: Sequence[str]) -> str:
    """Numbers of examples [C], "54 of zero, 104 of four"; empty where all are 0."""
    held = [f"{int(counts[c]):,} of {classes[c]}" for c in np.flatnonzero(counts).tolist()]
    more = f" and of {len(held) - MOST} more classes" if len(held) > MOST else ""
    return ", ".join(held[:MOST]) + more
