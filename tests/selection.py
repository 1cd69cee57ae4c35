"""Which of many cases `make test` runs: evenly spaced ones; `make nightly` runs them all."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def spread(cases: Sequence[T], count: int, always: Callable[[T], bool] = lambda case: False) -> list[Any]:
    """All cases as parameters. `count` of them, evenly spaced, and those that `always` names are not nightly."""
    chosen = {round(i * (len(cases) - 1) / max(count - 1, 1)) for i in range(min(count, len(cases)))}
    return [
        case if i in chosen or always(case) else pytest.param(case, marks=pytest.mark.nightly)
        for i, case in enumerate(cases)
    ]
