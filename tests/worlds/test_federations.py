"""Ordinary federations are imported and audited without a false word, or refused in a sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.drawn_federations import DRAWN
from tests.worlds.federations import EVERYTHING, FEDERATIONS
from tests.worlds.orders import ORDERS
from tests.worlds.world import cases, judge

pytestmark = pytest.mark.usefixtures("few_epochs")
WORLDS = {**FEDERATIONS, **ORDERS, **DRAWN}


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", cases(WORLDS))
def test_of_an_ordinary_federation_nothing_false_is_said(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    judged = judge(WORLDS[name], tmp_path)
    record_property("judged", tuple(judged))
    assert judged.word != "wrong", judged.why


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases(EVERYTHING))
def test_of_what_is_required_most_is_answered_where_everything_is_given(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    judged = judge(EVERYTHING[name], tmp_path)
    record_property("judged", tuple(judged))
    assert judged.word == "right", judged.why
