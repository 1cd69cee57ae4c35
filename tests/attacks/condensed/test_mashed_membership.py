"""Means of one example give it away, means of many fade, and means of noise give nothing."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedaudit.attacks.condensed.mashed_membership import MashedMembership, Means
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.clients.client import Client
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedmix import FedMix
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from tests.attacks.world import CLASSES, World


def means(world: World, client: int, size: int, blank: bool = False) -> Artifact:
    """What a client of FedMix really sends, of digits normalised by 0.3 and 0.4; or noise instead."""
    own = world.clients[client]
    working: Any = Client(
        index=client,
        round=0,
        x=(torch.from_numpy(own.x) - 0.3) / 0.4,
        y=torch.from_numpy(own.y),
        classes=CLASSES,
        message={},
        memory={},
        net=None,
        streams=Streams(client),  # type: ignore[arg-type]
    )
    sent = FedMix(FedMix.Config(group_size=size)).mash(working).message[Kind.MASHED_BATCH]
    payload = {name: v.numpy() for name, v in sent.items()}
    if blank:
        noise = np.random.default_rng(client).standard_normal(payload["images"].shape)
        payload["images"] = noise.astype(np.float32)
    return Artifact(
        id=f"r00000/client-{client}.uplink/mashed_batch",
        kind=Kind.MASHED_BATCH,
        round=0,
        channel=Channel.UPLINK,
        sender=Party.client(client),
        seen_by=("server",),
        payload=payload,
    )


@cache
def measured(size: int, blank: bool = False) -> tuple[Evidence, ...]:
    world, attack = World(sizes=()), MashedMembership()
    view = [means(world, k, size, blank) for k in range(len(world.clients))]
    claim = attack.run(view, world.knowledge, np.random.default_rng(0))
    assert attack.curves(claim, world)
    return tuple(attack.measure(claim, world, np.random.default_rng(0)))


def auc(control: str, size: int, blank: bool = False) -> Evidence:
    [found] = [e for e in measured(size, blank) if e.measure == "auc" and e.control == control]
    return found


def test_groups_of_one_give_every_example_away() -> None:
    found = auc("none", 1)
    assert found.value > 0.99 and found.interval is not None and found.interval[0] > 0.7
    assert found.condition == {"n": 1, "origin": "recorded"}
    assert all(b.value < 0.6 for b in found.baselines)


def test_membership_fades_with_the_size_of_the_groups() -> None:
    values = [auc("none", size).value for size in (1, 2, 5, 40)]
    assert values[0] > values[1] > values[2] > 0.5 and values[2] > values[3] - 0.02
    assert auc("none", 5).condition["n"] == 5


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("size", [1, 5])
def test_the_planted_leak_is_found_and_the_negative_control_does_not_fire(size: int, blank: bool) -> None:
    planted, negative = auc("positive", size, blank), auc("negative", size, blank)
    assert planted.value > 0.99 and planted.condition["origin"] == "planted"
    assert negative.interval is not None and negative.interval[0] <= 0.5 <= negative.interval[1]


@pytest.mark.parametrize(("size", "blank"), [(1, False), (40, False), (5, True)])
def test_whose_example_is_sent_is_counted_and_hardly_anybody_of_large_groups(size: int, blank: bool) -> None:
    world, attack = World(sizes=()), MashedMembership()
    claim = attack.run(
        [means(world, k, size, blank) for k in range(6)], world.knowledge, np.random.default_rng(0)
    )
    people, _ = attack.count_people(claim, world, np.random.default_rng(0))
    assert people.kind is Kind.MASHED_BATCH
    tested, hits = (sum(map(len, of.values())) for of in (people.tested, people.hit))
    assert tested > 0.9 * sum(people.held.values())
    assert hits > 0.95 * tested if size == 1 else hits < 0.12 * tested


def test_means_of_noise_say_nothing() -> None:
    found = auc("none", 5, blank=True)
    assert found.interval is not None and found.interval[0] <= 0.5


def test_the_score_is_the_largest_correlation_with_a_mean_of_the_class() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((3, 20)), rng.standard_normal((4, 20))
    x, m = ((a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True) for a in (x, m))
    shares = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    expected = [max(np.corrcoef(a, b)[0, 1] for b in m[[0, 2, 3]]) for a in x]
    assert Means(m, shares).score(x, 1) == pytest.approx(expected)


def test_the_area_is_that_of_an_independent_library() -> None:
    world, attack = World(sizes=()), MashedMembership()
    claim = attack.run([means(world, 0, 5)], world.knowledge, np.random.default_rng(0))
    sent, own = Means(claim["images"], claim["shares"]), world.clients[0]
    labels, scores = [], []
    for case in attack._cases(claim, world, np.random.default_rng(0)):
        for x, is_member in ((case.members, 1), (case.non_members, 0)):
            scores += sent.score(x, case.label).tolist()
            labels += [is_member] * len(x)
    assert set(own.y.tolist()) == {0, 1}
    [found] = [
        e
        for e in attack.measure(claim, world, np.random.default_rng(0))
        if e.measure == "auc" and e.control == "none"
    ]
    assert found.value == pytest.approx(roc_auc_score(labels, scores))
    assert [b.name for b in found.baselines] == ["chance"]  # nobody else's means


def test_the_pool_that_the_server_sends_is_no_single_clients() -> None:
    sent = means(World(sizes=()), 0, 5)
    pool = Artifact(
        id="r00000/server.downlink/mashed_batch",
        kind=sent.kind,
        round=0,
        sender=SERVER,
        channel=Channel.DOWNLINK,
        seen_by=("client",),
        payload=sent.payload,
    )
    reason = MashedMembership().not_applicable([pool], World(sizes=()).knowledge)
    assert reason == "no images, nor means of them, came from a client"


def test_too_few_members_are_refused() -> None:
    with pytest.raises(UserError, match="members must be >= 2, got 1"):
        configure(MashedMembership, {"members": 1}, "attacks[0]")
