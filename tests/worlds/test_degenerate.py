"""Of a degenerate world nothing false is said, and whatever was not looked at is open."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.degenerate import DEGENERATE

from tests.worlds.world import cases, judge

pytestmark = pytest.mark.usefixtures("few_epochs")


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", cases(DEGENERATE))
def test_of_a_degenerate_world_nothing_false_is_said(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    judged = judge(DEGENERATE[name], tmp_path)
    record_property("judged", tuple(judged))
    assert judged.word != "wrong", judged.why
