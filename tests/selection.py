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


def check_each(check: Callable[..., None], cases: Sequence[Any]) -> None:
    """One test over many small cases; its message has a line for each case on which the check fails."""
    problems = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        try:
            check(*arguments)
        except Exception as error:  # an assertion, pytest.raises that did not raise, or whatever our code raises
            problems.append(f"{' '.join(map(str, arguments))}: {type(error).__name__}: {error}")
        except pytest.fail.Exception as error:
            problems.append(f"{' '.join(map(str, arguments))}: {error}")
    assert not problems, "\n".join([f"{len(problems)} of {len(cases)} cases fail:", *problems[:20]])
