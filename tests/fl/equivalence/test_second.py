"""Methods without public code equal second programs that follow the papers' equations in double precision."""

import pytest

from tests.fl.equivalence.programs import PROGRAMS
from tests.fl.equivalence.second import TOLERANCE


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_method_equals_its_second_program(name: str) -> None:
    found = PROGRAMS[name]()
    assert found.difference() <= TOLERANCE
    assert found.effect() > 1000 * TOLERANCE  # it does something that a fault would change
