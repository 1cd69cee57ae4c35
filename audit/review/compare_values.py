"""Two plain values compared field by field: where they differ, and whether by more than is tolerated.

Numbers may differ by the interval of the measurement that was made here, or by a share; whole numbers must be
equal, and ids, outcomes and the like. Where sentences or pictures differ that is a place as well, and never one
that is too far.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.case.facts import WORDS

TOLERANCE = 0.05  # of what has no interval: as a share of the number made here
SMALLEST = 1e-6  # difference of two numbers that is one


@dataclass(frozen=True)
class ValuePlace:
    """Where two values differ, and whether by more than is tolerated."""

    text: str
    is_far: bool  # further away than tolerated


def compare_values(theirs: Any, ours: Any, key: str = "", reach: float | None = None) -> Iterator[ValuePlace]:
    """Every place where two plain values differ; `reach`: how far numbers may lie apart, by the replay's
    interval.
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        reach = _find_reach(ours, reach)
        for name in [*ours, *(k for k in theirs if k not in ours)]:
            at = f"{key}.{name}" if key else str(name)
            if name not in ours or name not in theirs:
                yield ValuePlace(f"{at} is on one side alone", True)
            elif not _is_same_leaf(theirs[name], ours[name]):
                yield from compare_values(theirs[name], ours[name], at, reach)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield ValuePlace(f"{key} has {len(theirs)} entries, and here {len(ours)}", True)
            return
        for i, (left, right) in enumerate(zip(theirs, ours, strict=True)):
            if not _is_same_leaf(left, right):
                yield from compare_values(left, right, f"{key}[{i}]", reach)
    elif type(theirs) is not type(ours) and not _are_numbers(theirs, ours):
        yield ValuePlace(f"{key} is {_shorten(theirs)}, and here {_shorten(ours)}", True)
    elif theirs != ours and not (theirs is not ours and _are_nan(theirs, ours)):
        yield ValuePlace(
            f"{key} is {_shorten(theirs)}, and here {_shorten(ours)}",
            not _is_near(theirs, ours, key.rpartition(".")[2], reach),
        )


def _is_same_leaf(theirs: Any, ours: Any) -> bool:
    """Whether two plain values are one number, word or nothing, as most of a folder's are."""
    return type(theirs) is type(ours) and not isinstance(ours, dict | list) and bool(theirs == ours)


def _find_reach(ours: Mapping[str, Any], above: float | None) -> float | None:
    """How far the numbers of one measurement may lie apart: the width of the replay's own interval of it."""
    interval = ours.get("interval")
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(i, int | float) for i in interval):
        return float(abs(interval[1] - interval[0]))
    return above


def _are_numbers(theirs: Any, ours: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in (theirs, ours))


def _are_nan(theirs: Any, ours: Any) -> bool:
    return _are_numbers(theirs, ours) and math.isnan(theirs) and math.isnan(ours)


def _is_near(theirs: Any, ours: Any, key: str, reach: float | None) -> bool:
    """Whether two values are as near as tolerated: whole numbers (trials) and ids must be equal."""
    if isinstance(ours, float) and _are_numbers(theirs, ours):
        reach = TOLERANCE * abs(ours) if reach is None else reach
        return bool(abs(theirs - ours) <= max(reach, SMALLEST))
    return isinstance(theirs, str) and isinstance(ours, str) and key not in WORDS


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
