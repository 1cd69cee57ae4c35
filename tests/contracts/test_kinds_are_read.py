"""Every kind that a method can send is asked about, and whatever an attack claims answers a question."""

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.taxonomy import FAMILIES, find_family, list_aims
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim
from tests.contracts.words import odd

CARDS = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_has_a_family_of_its_own_and_is_asked_about_unless_a_server_s_orders_tell_of_nobody(
    kind: Kind,
) -> None:
    assert find_family(kind) is not FAMILIES[-1], "it is asked everything, as a kind that nobody knows"
    assert dict(list_aims(kind, [Channel.UPLINK]))
    assert bool(dict(list_aims(kind, [Channel.DOWNLINK]))) is not kind.control_plane


@pytest.mark.parametrize("name", CARDS)
def test_whatever_an_attack_makes_claims_about_is_asked_with_its_aim(name: str) -> None:
    card = CARDS[name]
    asked = [k for k in card.targets if card.aim in dict(list_aims(k, list(Channel), card.needs))]
    assert asked, f"no question is about {card.aim} on {', '.join(card.targets)}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.words)
def test_the_words_of_a_family_are_plain(family: object) -> None:
    assert not odd(family.words)  # type: ignore[attr-defined]


def test_every_aim_says_when_a_person_counts() -> None:
    assert not any(odd(aim.words) for aim in Aim)
