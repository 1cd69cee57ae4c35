"""Every attack: where there is nothing to read it says so in a sentence, and strange data end no audit."""

import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.audit.settings import catalog
from tests.contracts.attack_worlds import made, stage
from tests.contracts.strange import STRANGE

NAMES = catalog.names("attacks")


def sentence(reason: str) -> bool:
    return len(reason.split()) >= 4 and reason.strip() == reason


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_view_is_a_sentence(name: str) -> None:
    assert sentence(made(name).not_applicable([], stage(name).knowledge))


@pytest.mark.parametrize("name", NAMES)
def test_a_view_that_lacks_a_kind_is_judged_and_a_required_one_is_a_sentence(name: str) -> None:
    attack, here = made(name), stage(name)
    for kind in attack.card.reads:
        reason = attack.not_applicable([a for a in here.view if a.kind != kind], here.knowledge)
        assert sentence(reason) or (reason == "" and kind not in attack.card.requires)


@pytest.mark.sample(16)
@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("name", NAMES)
def test_strange_data_raise_nothing(name: str, strange: str) -> None:
    attack: Attack = catalog.load("attacks", name)()
    view = STRANGE[strange].view(attack.card.reads)
    reason = attack.not_applicable(view, STRANGE[strange].knowledge)
    assert reason == "" or sentence(reason)
