"""Methods without public code equal second programs that follow the papers' equations in double precision."""

import pytest

from tests.fl.equivalence.faults import ROOT
from tests.fl.equivalence.list_of_faults import FAULTS
from tests.fl.equivalence.programs import PROGRAMS
from tests.fl.equivalence.second import TOLERANCE


@pytest.mark.sample(6)
@pytest.mark.dear("faug", "astraea")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_method_equals_its_second_program(name: str) -> None:
    found = PROGRAMS[name]()
    assert found.difference() <= TOLERANCE
    assert found.effect() > 1000 * TOLERANCE  # it does something that a fault would change


def test_the_faults_that_are_put_in_change_the_sources_as_they_are() -> None:
    """`python -m tests.fl.equivalence.faults` puts them in and counts who notices."""
    assert len(FAULTS) == len({f.name for f in FAULTS}) >= 30
    assert [f.name for f in FAULTS if f.old not in (ROOT / f.file).read_text() or f.old == f.new] == []
