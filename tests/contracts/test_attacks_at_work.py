"""Every attack at work: it finds its planted leak, reads what it may, says what it lacks, gives equal bytes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.observer.view import Observer, select_visible
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.workers import one_thread
from fedaudit.fl.tasks.survival import Survival
from fedaudit.fl.threats.threat import Harm, Position
from tests.contracts.attack_worlds import SLOW, WORLDS, made, stage
from tests.contracts.played import claim, claimed, digest, evidence, reordered, same, told
from tests.contracts.strange import STRANGE

NAMES = [n for n in catalog.names("attacks") if n in WORLDS]
QUICK = [n for n in NAMES if n not in SLOW]
EVERY = [pytest.param(n, marks=pytest.mark.nightly if n in SLOW else ()) for n in NAMES]


@pytest.fixture(autouse=True)
def as_the_phase_runs_them() -> Iterator[None]:
    with one_thread():
        yield


def test_every_attack_has_a_world() -> None:
    missing = sorted(set(catalog.names("attacks")) - set(WORLDS))
    assert not missing, (
        f"add to WORLDS of tests/contracts/attack_worlds.py a world with a planted leak: {missing}"
    )
    assert set(WORLDS) <= set(catalog.names("attacks")) and set(WORLDS) >= SLOW


NO_IMAGES = [n for n in NAMES if "images" not in catalog.load("attacks", n).card.needs]


@pytest.mark.parametrize("name", NO_IMAGES)
def test_an_attack_that_needs_no_images_is_refused_without_a_word_of_images(name: str) -> None:
    played, attack = stage(name), configure(catalog.load("attacks", name), stage(name).settings, "")
    lacking: list[dict[str, Any]] = [{}, {"trainer": None}, {"task": Survival()}, {"player": None}]
    if (own := played.knowledge.auxiliary) is not None:
        lacking += [{"auxiliary": own.only(np.arange(few))} for few in (0, 1)]
    for lacks in lacking:
        known = replace(played.knowledge, **lacks)
        assert not [s for view in ([], played.view) if "image" in (s := attack.not_applicable(view, known))]


# What is planted is found


def headlines(found: list[Evidence]) -> list[Evidence]:
    """The first measure of each place: the one that a finding is made of."""
    return list({e.place: e for e in reversed(found)}.values())


def clear(e: Evidence) -> bool:
    """Whether the whole interval is worse than every baseline."""
    assert e.interval is not None and e.strongest is not None
    low, high = e.interval
    return low > e.strongest.value if e.higher_is_worse else high < e.strongest.value


@pytest.mark.sample(11)
@pytest.mark.dear("activation_decoder", "condensed_refinement", "lira", "critic_score", "relayed_generator")
@pytest.mark.parametrize("name", EVERY)
def test_the_planted_leak_is_found(name: str) -> None:
    leak = stage(name).leak
    planted = [
        e
        for e in evidence(name)
        if (leak.items() <= e.condition.items() if leak and e.control == "none" else e.control == "positive")
    ]
    assert planted and all(clear(e) for e in headlines(planted))


@pytest.mark.sample(11)
@pytest.mark.dear("activation_decoder", "condensed_refinement", "lira", "critic_score", "relayed_generator")
@pytest.mark.parametrize("name", EVERY)
def test_the_silent_control_covers_the_baseline(name: str) -> None:
    silent = [e for e in evidence(name) if e.control == "negative"]
    assert silent
    for e in silent:
        assert e.interval is not None and e.strongest is not None
        assert e.interval[0] <= e.strongest.value <= e.interval[1]


# Who is counted is known to the truth, and counted once

WITHOUT_GROUPS = {"prototype_difference", "public_membership"}  # their held-out people are of no group
COUNTING = [n for n in QUICK if catalog.load("attacks", n).count_people is not Attack.count_people]


@pytest.mark.sample(9)
@pytest.mark.dear(
    *("activation_decoder", "condensed_refinement", "lira", "critic_score", "generator_extraction"),
    *("played_message", "relayed_generator", "uploaded_critic", "frozen_layers", "unsplit"),
)
@pytest.mark.parametrize("name", COUNTING)
def test_everybody_behind_a_recorded_message_is_tested_once_and_beside_people_of_nobodys(name: str) -> None:
    here, card = stage(name), made(name).card
    counted = made(name).count_people(claim(name), here.truth, np.random.default_rng(1))
    sent = {a.kind for a in here.view if a.origin == "recorded" and a.sender.role == Role.CLIENT}
    assert (
        counted or name == "prototype_difference" or not sent & set(card.targets)
    )  # its clients keep their data
    assert len({(p.kind, p.harm) for p in counted}) == len(counted)
    for people in counted:
        assert people.hit_means and people.luck.trials > 0 and people.kind in (None, *card.targets)
        assert any(people.harm in aim.harms for aim in card.aims)
        assert set(people.planted) <= set(people.held) and any(people.tested.values())
        for client, rows in people.tested.items():
            own = {client} if people.harm is Harm.CLIENT_FACT else set(here.truth.client_rows(client).tolist())
            assert len(set(rows)) == len(rows) and set(people.hit.get(client, ())) <= set(rows) <= own
            assert len(rows) <= people.held[client] <= len(own)


@pytest.mark.sample(9)
@pytest.mark.dear(
    *("activation_decoder", "condensed_refinement", "lira", "critic_score", "generator_extraction"),
    *("played_message", "relayed_generator", "uploaded_critic", "frozen_layers", "unsplit"),
)
@pytest.mark.parametrize("name", COUNTING)
def test_groups_of_people_stand_beside_held_out_people_of_the_same_group(name: str) -> None:
    here = stage(name)
    for people in made(name).count_people(claim(name), here.truth, np.random.default_rng(1)):
        total = sum(map(len, people.tested.values()))
        assert len({g.name for g in people.groups}) == len(people.groups)
        for group in people.groups:
            assert group.tested < total and group.hits <= sum(map(len, people.hit.values()))
            assert group.luck.trials > 0 or group.name == "rarest tenth" or name in WITHOUT_GROUPS, group


# What it may read is what it reads


class Watched(Mapping[str, Any]):
    """Arrays that remember who was asked for."""

    def __init__(self, payload: Mapping[str, Any], kind: Kind, asked: set[tuple[Kind, str]]) -> None:
        self._payload, self._kind, self._answer = payload, kind, asked

    def __getitem__(self, name: str) -> Any:
        self._answer.add((self._kind, name))
        return self._payload[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._payload)

    def __len__(self) -> int:
        return len(self._payload)


def others(name: str) -> list[Artifact]:
    """One of every kind that the card does not name, before and after all that it does."""
    unread = [k for k in Kind if k not in made(name).card.reads]
    return [
        Artifact(
            id=f"r{round}/other/{kind}",
            kind=kind,
            channel=Channel.UPLINK if sender.role == Role.CLIENT else Channel.DOWNLINK,
            round=round,
            sender=sender,
            seen_by=("server", "client"),
            payload={n: np.ones((1, 1), np.float32) for n in kind.arrays},
        )
        for kind in unread
        for round in (0, 99)
        for sender in (SERVER, Party.client(0))
    ]


@pytest.mark.sample(11)
@pytest.mark.dear("activation_decoder", "condensed_refinement", "lira", "critic_score", "relayed_generator")
@pytest.mark.parametrize("name", EVERY)
def test_it_reads_what_its_card_names_and_neither_order_nor_other_kinds_change_a_byte(name: str) -> None:
    card, asked, here = made(name).card, set[tuple[Kind, str]](), map(reordered, stage(name).view)
    view = [replace(a, payload=Watched(a.payload, a.kind, asked)) for a in (*others(name), *here)]
    found = claimed(name, view)
    known = {(k, n) for k in card.reads for n in k.arrays}
    read = {k for k, _ in asked}
    assert read and set(card.pick_read(read)) == read
    assert {(k, n) for k, n in asked if not {"*", "KIND/NAME"} & set(k.arrays)} <= known
    assert same(name, claim(name), found)


READERS = {
    Position.SERVER: Observer((SERVER,)),
    Position.NEXT_CLIENT: Observer(tuple(map(Party.client, range(20)))),
    Position.COLLUDING_CLIENTS: Observer(tuple(map(Party.client, range(20))), colluding=True),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_others_sent_to_each_other_is_not_in_its_view(name: str) -> None:
    card, here = made(name).card, stage(name).view
    one, two = (Party(Role.MEDIATOR, i) for i in range(2))
    elsewhere = [replace(a, id=f"elsewhere/{a.id}", sender=one, seen_by=(str(two),)) for a in here]
    who = READERS[card.threat.position]
    own = select_visible(here, who, card)
    assert own and select_visible([*elsewhere, *others(name), *here], who, card) == own


# Where there is nothing to read it says so, and strange data end no audit


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


# The same bytes


def elsewhere(names: list[str]) -> dict[str, str]:
    """Digests of evidence that another process, with two threads, made of arrays in another order."""
    command = [sys.executable, "-m", "tests.contracts.played", "2", *names]
    # threads that wait asleep: spinning ones take the cores of whatever else runs
    quiet = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.nightly
def test_two_processes_and_any_number_of_threads_give_the_same_bytes() -> None:
    found = elsewhere(QUICK)
    assert list(found) == QUICK
    assert [n for n in QUICK if found[n] != digest(told(evidence(n)))] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(SLOW))
def test_slow_attacks_give_the_same_bytes(name: str) -> None:
    assert elsewhere([name]) == {name: digest(told(evidence(name)))}
