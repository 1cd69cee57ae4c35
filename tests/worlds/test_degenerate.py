"""Of a degenerate world nothing false is said, and whatever was not looked at is open."""

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.degenerate import DEGENERATE
from tests.worlds.drawn import DRAWN
from tests.worlds.world import cases, check_world


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", cases(DEGENERATE))
def test_of_a_degenerate_world_nothing_false_is_said(name: str, tmp_path: Path, record_property: Any) -> None:
    check_world(DEGENERATE[name], tmp_path, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases(DRAWN))
def test_of_a_world_that_was_drawn_nothing_false_is_said(name: str, tmp_path: Path, record_property: Any) -> None:
    check_world(DRAWN[name], tmp_path, record_property)
