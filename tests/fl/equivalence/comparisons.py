"""Every comparison of some methods, by name, and whether it is out of its tolerance now."""

from collections.abc import Callable, Collection, Iterator

import pytest

from tests.fl.equivalence.programs import PROGRAMS, name_method
from tests.fl.equivalence.replay import Case, cases, differences, replay
from tests.fl.equivalence.second import TOLERANCE
from tests.fl.equivalence.test_terms import CASES as TERMS
from tests.fl.equivalence.test_terms import test_a_term_equals_that_of_the_public_code as check_term


def compare(methods: Collection[str] = ()) -> Iterator[tuple[str, bool]]:
    """(name, whether it is wrong or breaks) of trajectories, terms and second programs; no methods: of all."""
    for case in cases():
        if not methods or case.entry["method"] in methods:
            yield case.name, any(_wrong(lambda c=case, s=s: _trajectory(c, s)) for s in (False, True))  # type: ignore[misc]
    for case in TERMS:
        if not methods or any(case.name.startswith(m) for m in methods):
            yield f"term {case.name}", _wrong(lambda c=case: check_term(c))  # type: ignore[misc]
    for name in PROGRAMS:
        if not methods or name_method(name) in methods:
            yield f"second program {name}", _wrong(lambda n=name: _program(n))  # type: ignore[misc]


def _trajectory(case: Case, stacked: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = differences(case, replay(case, patch, stacked=stacked, train_lost=True))
    assert all(found[group] <= case.entry["tolerance"][group] for group in case.entry["compare"])


def _program(name: str) -> None:
    assert PROGRAMS[name]().difference() <= TOLERANCE


def _wrong(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:  # whatever a fault does, it is noticed
        return True
    return False
