"""Messages of many plays as rows of numbers, array by array, to read facts about a client from.

Of each kind: whether it came. Of each array: its length, total, smallest and largest number. Where it has one
shape in all messages, which of its rows are not empty or 0, and all numbers, or random sums of many; else its
quantiles. Where a message lists its classes, the place of each in the list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Sent
from fedaudit.attacks.messages._blocks import find_listed, read_blocks
from fedaudit.fl.kinds import Kind

Values = NDArray[np.float64]
MOST_NUMBERS = 256  # of an array, that are read one by one; of larger ones so many random sums
LEVELS = np.linspace(0, 1, 11)  # of quantiles
LARGEST, SMALLEST = 1e30, 1e-12  # beyond these a number is no number to work with
CAME, PLACES, TOGETHER = "whether it comes", "place of a class", "all of it"


@dataclass(frozen=True)
class Summary:
    """Of one array: what all arrays have, and what those have that are of one shape."""

    shape: tuple[int, ...]
    whole: Values  # [4] length, total, smallest, largest
    quantiles: Values
    rows: NDArray[Any]  # which have a number that is not 0
    numbers: Values  # [MOST_NUMBERS] at most


Summaries = Mapping[str, Summary]  # "KIND/NAME"


def summarise(sent: Sent, kinds: Sequence[Kind], classes: int) -> Summaries:
    """All that is read of a message."""
    blocks = read_blocks(sent, kinds, classes)
    for kind in (k for k in kinds if k in sent):
        blocks[f"{kind}/{CAME}"] = np.zeros(0)
        if (listed := find_listed(sent[kind], classes)) is not None:
            places = np.full(classes, np.nan)
            places[listed] = np.arange(len(listed))
            blocks[f"{kind}/{PLACES}"] = places
    return {name: _summarise_array(values) for name, values in blocks.items()}


def _summarise_array(values: Values) -> Summary:
    known = np.isfinite(values)
    numbers = np.where(known, np.clip(np.nan_to_num(values), -LARGEST, LARGEST), 0.0)
    there = numbers[known] if known.any() else np.zeros(1)
    length = values.shape[0] if values.ndim else 1
    return Summary(
        shape=values.shape,
        whole=np.array([length, there.sum(), there.min(), there.max()], np.float64),
        quantiles=np.quantile(there, LEVELS),
        rows=(numbers.reshape(length, -1) != 0).any(axis=1)[:MOST_NUMBERS] if values.size else np.zeros(0),
        numbers=_compress(numbers.ravel()),
    )


def _compress(numbers: Values) -> Values:
    """The numbers, or random sums of them, the same for all arrays of a size."""
    if len(numbers) <= MOST_NUMBERS:
        return numbers
    rng = np.random.default_rng(len(numbers))
    place, sign = rng.integers(0, MOST_NUMBERS, len(numbers)), rng.choice([-1.0, 1.0], len(numbers))
    return np.asarray(np.bincount(place, weights=numbers * sign, minlength=MOST_NUMBERS), np.float64)


def tabulate(messages: Sequence[Summaries]) -> dict[str, Values]:
    """Rows [m, D] of numbers, one a message: of each array, of each kind, of all kinds; the narrowest first.

    Numbers that are the same in all messages are left out; of an array that did not come all are 0.
    """
    found: dict[str, Values] = {}
    for name in sorted({name for message in messages for name in message}):
        here = [m.get(name) for m in messages]
        came = [s for s in here if s is not None]
        is_alike = len({s.shape for s in came}) == 1
        width = len(_list_numbers(came[0], is_alike))
        table = np.zeros((len(messages), 1 + width))
        for row, summary in zip(table, here, strict=True):
            if summary is not None:
                row[0], row[1:] = 1.0, _list_numbers(summary, is_alike)
        if (differing := np.ptp(table, axis=0) > 0).any():
            found[name] = table[:, differing]
    kinds = dict.fromkeys(name.partition("/")[0] for name in found)
    for group, start in [*((kind, f"{kind}/") for kind in kinds), (TOGETHER, "")]:
        parts = [table for name, table in found.items() if "/" in name and name.startswith(start)]
        if len(parts) > 1 and (start or len(kinds) > 1):
            found[group] = np.concatenate(parts, axis=1)
    return dict(sorted(found.items(), key=lambda item: item[1].shape[1]))


def _list_numbers(summary: Summary, is_alike: bool) -> Values:
    own = (summary.rows, summary.numbers) if is_alike else (summary.quantiles,)
    return np.concatenate([summary.whole, *own])


def add_reciprocals(table: Values) -> Values:
    """[m, 2 D] numbers and one over each, as rates have it; 0 where there is no such."""
    inverse = np.zeros_like(table)
    np.divide(1.0, table, out=inverse, where=np.abs(table) > SMALLEST)
    return np.concatenate([table, inverse], axis=1)
