"""From reconstructions to people: each once, all clients in it, luck from held-out people, plants by client."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.attacks.prototypes.lookup import Lookup
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from tests.attacks.world import World

CLIENTS = 4


@cache
def world() -> World:
    return World(sizes=(1,), clients=CLIENTS, groups=40)


@cache
def claim(max_clients: int = 1000) -> Claim:
    attack = Ridge(Ridge.Config(max_clients=max_clients))
    return attack.run(world().artifacts, world().knowledge, np.random.default_rng(0))


def counted(claim: Claim) -> PeopleCount:
    (people,) = Ridge().count_people(claim, world(), np.random.default_rng(1))
    return people


def redrawn(images: np.ndarray, of: Claim | None = None) -> Claim:
    """The claim, with these images for what clients sent."""
    is_sent = claim()["origin"] == "recorded"
    changed = (of or claim())["images"].copy()
    changed[is_sent] = images
    return {**claim(), "images": changed}


def every() -> list[tuple[str, int]]:
    """Artifacts and classes of all claims, planted ones too."""
    return list(zip(claim()["artifact"].tolist(), claim()["label"].tolist(), strict=True))


def sent() -> list[tuple[str, int]]:
    rows = claim()["origin"] == "recorded"
    return list(zip(claim()["artifact"][rows].tolist(), claim()["label"][rows].tolist(), strict=True))


def test_every_person_of_every_client_is_tested_once() -> None:
    people = counted(claim())
    assert {k: len(rows) for k, rows in people.tested.items()} == dict(people.held)
    assert dict(people.held) == {k: len(world().client_examples(k)) for k in range(CLIENTS)}
    assert all(len(set(rows)) == len(rows) for rows in people.tested.values())


def test_a_client_that_was_not_read_is_held_and_not_tested() -> None:
    people = counted(claim(max_clients=1))
    assert len(people.tested) == 1 and len(people.held) == CLIENTS
    assert sum(people.held.values()) == sum(len(world().client_examples(k)) for k in range(CLIENTS))


def test_whoever_is_redrawn_is_hit_and_nobody_else() -> None:
    firsts = np.stack([world().members(a, c)[0] for a, c in sent()])
    people = counted(redrawn(firsts))
    expected: dict[int, list[int]] = {}
    for a, c in sent():
        for client, rows in world().people(a, c).items():
            expected.setdefault(client, []).append(int(rows[0]))
    assert people.hit == {k: tuple(sorted(rows)) for k, rows in expected.items()}


def test_who_stands_beside_the_only_person_claimed_is_no_evidence_of_safety() -> None:
    """One image is claimed of a message of many people: where it hits, nobody knows what one claim more would."""
    images = np.stack([world().members(a, c)[0] for a, c in sent()])
    people = counted(redrawn(images))
    beside = {k: people.held[k] - len(people.hit[k]) for k in people.held}
    assert dict(people.unclaimed) == beside and sum(beside.values()) > 0
    nobody = counted(redrawn(np.stack([world().members(a, c).mean(axis=0) for a, c in sent()])))
    assert not any(nobody.unclaimed.values())


def test_a_person_whom_luck_names_says_nothing_of_who_stands_beside() -> None:
    """Something always is the nearest: only who is named as clearly as planted people are was redrawn."""
    exact = {**claim(), "images": np.stack([world().members(a, c)[0] for a, c in every()])}
    first, second = (np.stack([world().members(a, c)[i] for a, c in sent()]) for i in (0, 1))
    people = counted(redrawn(0.55 * first + 0.45 * second, exact))
    assert any(people.hit.values()) and not any(people.unclaimed.values())
    assert any(counted(redrawn(first, exact)).unclaimed.values())


def test_whoever_is_redrawn_in_any_round_is_hit_and_only_the_latest_round_is_evidence() -> None:
    later = [
        replace(a, id=a.id.replace("r00003", "r00009"), round=9)
        for a in world().artifacts
        if a.origin == "recorded"
    ]
    attack = Ridge()
    assert attack.card.rounds == Lookup.card.rounds == "all"
    both = attack.run([*world().artifacts, *later], world().knowledge, np.random.default_rng(0))
    images, is_early = both["images"].copy(), (both["origin"] == "recorded") & (both["round"] == 3)
    assert is_early.sum() == len(sent()) and (both["origin"] == "recorded").sum() == 2 * len(sent())
    for row in np.flatnonzero(both["origin"] == "recorded"):
        members = world().members(str(both["artifact"][row]), int(both["label"][row]))
        images[row] = members[0] if is_early[row] else members.mean(axis=0)
    redrawn_early = {**both, "images": images}
    people = counted(redrawn_early)
    assert sum(map(len, people.hit.values())) == len(sent())
    judged = Ridge().measure(redrawn_early, world(), np.random.default_rng(1))
    recorded = [e for e in judged if e.condition.get("origin") == "recorded" and e.measure == "named"]
    assert recorded and all(e.value == 0 for e in recorded)
    assert sum(e.trials for e in recorded) == len(sent())


def test_the_mean_of_a_group_and_of_a_class_hit_nobody() -> None:
    means = np.stack([world().members(a, c).mean(axis=0) for a, c in sent()])
    assert counted(redrawn(means)).hit == {}
    of_class = np.stack([world().auxiliary.of_class(c).mean(axis=0) for _, c in sent()])
    people = counted(redrawn(of_class))
    assert people.hit == {} and people.luck.hits == 0 and people.luck.trials > 100


def test_luck_is_how_often_somebody_is_named_whom_nobody_trained_on() -> None:
    strangers = np.stack([world().reference.of_class(c)[0] for _, c in sent()])
    people = counted(redrawn(strangers))
    assert people.hit == {} and people.luck.hits == len(sent())


def test_plants_are_counted_by_client_where_the_protections_let_them_pass() -> None:
    people = counted(claim())
    assert set(people.planted) == set(range(CLIENTS))
    assert sum(s.trials for s in people.planted.values()) == 40
    assert sum(s.hits for s in people.planted.values()) > 20
    origin = np.where(claim()["artifact"] == "replay/n1/0", UNPROTECTED, claim()["origin"].astype(str))
    assert sum(s.trials for s in counted({**claim(), "origin": origin}).planted.values()) == 39


@pytest.mark.parametrize("attack", [Ridge, Lookup])
def test_by_default_no_client_is_skipped(attack: type[Ridge]) -> None:
    assert attack.Config().max_clients >= 1000


def test_a_person_whom_two_messages_hit_is_one_person() -> None:
    found = CountedPeople("found", Harm.ATTRIBUTE)
    for _ in range(2):
        found.test(3, [7, 8], [7])
    found.hold_at_least(3, 1)
    found.hold_at_least(4, 5)
    (people,) = found.people(world())
    assert (people.tested, people.hit, people.held) == ({3: (7, 8)}, {3: (7,)}, {3: 2, 4: 5})
    assert CountedPeople("found", Harm.ATTRIBUTE).people(world()) == []
    assert people.luck == Share()


def test_a_minimum_count_is_advised_unless_people_are_named_in_large_groups() -> None:
    firsts = np.stack([world().members(a, c)[0] for a, c in sent()])
    means = np.stack([world().members(a, c).mean(axis=0) for a, c in sent()])
    large, none = (Ridge().choose_remedy(redrawn(x), world(), []) for x in (firsts, means))
    assert "minimum count of 20 does not help" in large and none == Ridge.card.remedy
    lucky = firsts.copy()
    lucky[1:] = means[1:]  # one of eight groups
    assert Ridge().choose_remedy(redrawn(lucky), world(), []) == Ridge.card.remedy


def test_whoever_is_named_in_one_kind_of_message_is_not_hit_in_another() -> None:
    """The first client sends what it sends in a sum; the others send prototypes of their own."""
    firsts = redrawn(np.stack([world().members(a, c)[0] for a, c in sent()]))
    in_sum = firsts["sender"] == 0
    kinds = {"kind": np.where(in_sum, "aggregate", "local_prototypes"), "senders": np.arange(4)}
    kinds["sent"] = np.where(np.arange(4) == 0, "aggregate", "local_prototypes")
    counted = Ridge().count_people({**firsts, **kinds}, world(), np.random.default_rng(1))
    assert {p.kind: set(p.hit) for p in counted} == {Kind.AGGREGATE: {0}, Kind.LOCAL_PROTOTYPES: {1, 2, 3}}
    assert {p.kind: set(p.held) for p in counted} == {Kind.AGGREGATE: {0}, Kind.LOCAL_PROTOTYPES: {1, 2, 3}}
