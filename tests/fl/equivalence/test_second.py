"""Methods without public code equal second programs that follow the papers' equations in double precision."""

import re

import pytest

from tests.fl.equivalence.faults import ROOT
from tests.fl.equivalence.list_of_faults import FAULTS
from tests.fl.equivalence.programs import PROGRAMS, name_method
from tests.fl.equivalence.second import TOLERANCE
from tests.fl.equivalence.table import describe_source

ROW = re.compile(r"^\| `([^`]+)` \|.*\| second program \| ([0-9.e-]+) \|", re.MULTILINE)
STATED = {name: float(gap) for name, gap in ROW.findall((ROOT / "docs" / "attacks.md").read_text())}
ROUNDING = 4  # another machine adds up in another order


@pytest.mark.sample(6)
@pytest.mark.dear("faug", "astraea")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_method_equals_its_second_program_as_nearly_as_the_pages_say(name: str) -> None:
    found = PROGRAMS[name]()
    assert found.difference() <= TOLERANCE
    assert found.effect() > 1000 * TOLERANCE  # it does something that a fault would change
    if name in STATED:
        assert 1 / ROUNDING < found.difference() / STATED[name] < ROUNDING


def test_the_pages_and_the_table_name_programs_and_methods_that_there_are() -> None:
    assert len(STATED) >= 8 and STATED.keys() <= PROGRAMS.keys()
    for name in PROGRAMS:
        assert describe_source(name_method(name)).startswith("second program after ")


def test_the_faults_that_are_put_in_change_the_sources_as_they_are() -> None:
    """`python -m tests.fl.equivalence.faults` puts them in and counts who notices."""
    assert len(FAULTS) == len({f.name for f in FAULTS}) >= 30
    assert [f.name for f in FAULTS if f.old not in (ROOT / f.file).read_text() or f.old == f.new] == []
