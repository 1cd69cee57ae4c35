"""Whatever a method can send is read by an attack, or a sentence says why it tells nothing."""

from collections import defaultdict

import pytest
from fedaudit.attacks.evaluation.unread import UNREAD

from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from tests.contracts.words import odd

READ: dict[Kind, set[str]] = defaultdict(set)
for attack in catalog.names("attacks"):
    for kind in catalog.load("attacks", attack).card.reads:
        READ[kind].add(attack)


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_read_by_an_attack_or_a_sentence_says_why_not(kind: Kind) -> None:
    assert (kind in UNREAD) != bool(READ[kind]), f"{kind}: {READ[kind] or 'no attack and no sentence'}"


@pytest.mark.parametrize("method", catalog.names("methods"))
def test_all_that_a_method_sends_is_read_or_excused(method: str) -> None:
    card = catalog.load("methods", method).card
    sent = {k for c in Channel for k in getattr(card, c.value)}
    assert [k for k in sent if not READ[k] and k not in UNREAD] == []


@pytest.mark.parametrize("kind", UNREAD)
def test_the_sentence_is_one(kind: Kind) -> None:
    assert len(UNREAD[kind].split()) > 5 and not odd(UNREAD[kind])
