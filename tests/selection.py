"""One test over many small cases."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest


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
