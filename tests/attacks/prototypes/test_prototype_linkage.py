"""Linkage: an image is given to its owner among the clients of its class, and a stranger's to nobody."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from fedaudit.attacks.attack import Examples, Unseen
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_linkage import PrototypeLinkage
from fedaudit.fl.kinds import Kind
from tests.attacks.world import World


@cache
def world() -> World:
    return World(sizes=(1, 2, 10), clients=10, groups=60)


@cache
def judged() -> list[Evidence]:
    attack, rng = PrototypeLinkage(), np.random.default_rng(0)
    return attack.measure(attack.run(world().artifacts, world().knowledge, rng), world(), rng)


def one(n: float) -> Evidence:
    return next(e for e in judged() if e.condition == {"n": n, "origin": "replayed"})


def test_the_score_is_the_ratio_of_the_two_gaussians_with_their_constants() -> None:
    rng = np.random.default_rng(0)
    root, mean, prototype = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    cov, features = root @ root.T, rng.normal(size=(4, 3))
    spread, axes = np.linalg.eigh(cov)
    claim = {
        "population": np.array([0]),
        "n": np.array([5]),
        "prototype": prototype[None],
        "noise_std": np.array(0.3),
        "mean": mean[None],
        "axes": axes[None],
        "spread": spread[None],
        "law": np.array([None]),
    }
    tau = 0.3**2 * np.eye(3)
    out = multivariate_normal(mean, cov / 5 + tau).logpdf(prototype)
    into = [multivariate_normal(mean + (f - mean) / 5, cov * 4 / 25 + tau).logpdf(prototype) for f in features]
    np.testing.assert_allclose(PrototypeLinkage().score(claim, 0, features), np.array(into) - out)


def test_a_single_sample_is_given_to_its_owner_and_larger_groups_less_often() -> None:
    assert one(1).control == "positive" and one(1).value > 0.99
    assert one(1).value > one(2).value > one(10).value
    low = one(2).interval
    assert low is not None and low[0] > 0.7


def test_people_are_hit_where_their_own_client_is_named_and_others_in_its_place_by_luck() -> None:
    attack, rng = PrototypeLinkage(), np.random.default_rng(0)
    (people,) = attack.count_people(attack.run(world().artifacts, world().knowledge, rng), world(), rng)
    assert "given to the client" in people.hit_means
    assert {k: len(rows) for k, rows in people.tested.items()} == dict(people.held)
    tested, hits = (sum(map(len, of.values())) for of in (people.tested, people.hit))
    (real,) = [e for e in judged() if e.condition.get("origin") == "recorded"]
    assert hits / tested == pytest.approx(real.value, abs=0.06)
    assert people.luck.hits / people.luck.trials == pytest.approx(0.5, abs=0.06)  # two clients own each class
    assert all(s.hits == s.trials > 0 for s in people.planted.values()) and len(people.planted) == 10
    of_client = {g.name: g.luck for g in people.groups}["client 0"]
    assert 0 < of_client.hits < of_client.trials < people.luck.trials


def test_whoever_is_given_to_the_client_that_holds_them_out_is_luck() -> None:
    """Here its prototypes are made of them too, as if its people were like nobody else's."""

    class Owned(World):
        def unseen(self, clients: Any) -> Unseen:
            own = self.clients[clients[0]] if len(clients) else self.clients[0].only(np.zeros(0, np.int64))
            return Unseen(own.only(np.arange(0, len(own), 3)), "its own")

        def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
            every = super().people(artifact, label)
            return {k: rows[rows % 1000 % 3 > 0] for k, rows in every.items()}

        def client_examples(self, client: int) -> Examples:
            return self.clients[client].only(self.client_rows(client) % 1000)

        def client_rows(self, client: int) -> NDArray[np.int64]:
            rows = super().client_rows(client)
            return rows[rows % 1000 % 3 > 0]

    made, attack, rng = Owned(sizes=(1,), clients=10), PrototypeLinkage(), np.random.default_rng(0)
    (people,) = attack.count_people(attack.run(made.artifacts, made.knowledge, rng), made, rng)
    hits, tested = (sum(map(len, of.values())) for of in (people.hit, people.tested))
    assert people.luck.hits / people.luck.trials == pytest.approx(hits / tested, abs=0.1)


def test_the_owner_is_guessed_once_in_as_many_clients() -> None:
    assert all(e.baselines[0].value == pytest.approx(0.5) for e in judged())  # two clients own each class


def test_whole_classes_of_clients_are_linked_above_chance() -> None:
    (real,) = [e for e in judged() if e.condition.get("origin") == "recorded"]
    assert real.interval is not None and real.interval[0] > 0.5
    assert {b.name for b in real.baselines} == {"chance", "client with most of the class"}


def test_images_of_nobody_are_given_to_nobody_in_particular() -> None:
    (control,) = [e for e in judged() if e.control == "negative"]
    assert control.interval is not None and control.interval[0] <= 0.5 <= control.interval[1]
    assert control.trials > 1000


def test_prototypes_of_other_clients_models_link_less() -> None:
    # every client's features are read with the next client's model: only chance is left
    models = {a.sender: a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL}
    order = list(models)
    wrong = dict(zip(order, order[1:] + order[:1], strict=True))
    view = [
        replace(a, payload=models[wrong[a.sender]].payload) if a.kind == Kind.LOCAL_MODEL else a
        for a in world().artifacts
    ]
    attack, rng = PrototypeLinkage(), np.random.default_rng(0)
    found = attack.measure(attack.run(view, world().knowledge, rng), world(), rng)
    at_two = next(e for e in found if e.condition == {"n": 2, "origin": "replayed"})
    assert at_two.value < one(2).value - 0.2


def test_it_does_not_apply_where_no_class_is_shared() -> None:
    alone = World(sizes=(), clients=5)
    reason = PrototypeLinkage().not_applicable(alone.artifacts, alone.knowledge)
    assert "no class was sent by two clients" in reason
    assert PrototypeLinkage().not_applicable(world().artifacts, world().knowledge) == ""


@pytest.mark.parametrize("n", [1, 2, 10])
def test_intervals_are_corrected_for_the_sizes_compared(n: float) -> None:
    assert one(n).looks == 4  # three replayed sizes and one recorded range
