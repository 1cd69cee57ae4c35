"""Collusion: all clients of a class but one get that one's prototype to rounding, and nothing beyond it."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_collusion import PrototypeCollusion, recover_prototype
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import World, _artifact


@cache
def world(noise: float = 0.0) -> World:
    """Fifteen clients of two classes each, three a class; the next round sends the weighted means."""
    here = World(sizes=(), clients=15)
    sums: dict[int, Any] = {}
    for a in [a for a in here.artifacts if a.kind == Kind.LOCAL_PROTOTYPES]:
        (counts,) = [b for b in here.artifacts if b.kind == Kind.PROTO_COUNTS and b.sender == a.sender]
        for c, p, n in zip(a.payload["classes"], a.payload["features"], counts.payload["counts"], strict=True):
            known, total = sums.get(int(c), (0.0, 0))
            sums[int(c)] = known + n * p.astype(np.float64), total + n
    rng = np.random.default_rng(0)
    means = np.stack([sums[c][0] / sums[c][1] for c in sorted(sums)])
    means += noise * rng.standard_normal(means.shape)
    here.artifacts.append(broadcast(means, sorted(sums)))
    return here


def broadcast(features: Any, classes: list[int]) -> Artifact:
    payload = {"classes": np.array(classes), "features": np.asarray(features, np.float32)}
    return Artifact(
        id="r00004/server.downlink/global_prototypes",
        kind=Kind.GLOBAL_PROTOTYPES,
        channel=Channel.DOWNLINK,
        round=4,
        sender=SERVER,
        seen_by=("server", "client"),
        payload=payload,
    )


@cache
def measured(noise: float = 0.0) -> tuple[Evidence, ...]:
    here, attack = world(noise), PrototypeCollusion()
    claim = attack.run(here.artifacts, here.knowledge, np.random.default_rng(0))
    return tuple(attack.measure(claim, here, np.random.default_rng(0)))


def one(measure: str, control: str = "none", noise: float = 0.0) -> Evidence:
    (found,) = [e for e in measured(noise) if (e.measure, e.control) == (measure, control)]
    return found


def test_two_of_three_clients_recover_the_third_ones_prototype_to_rounding() -> None:
    found = one("prototype_recovered")
    assert (found.value, found.trials, found.condition) == (1, 30, {"colluders": 2})
    assert [b.value for b in found.baselines] == [0, 0]
    error = one("prototype_relative_error")
    assert error.value < 1e-5 and min(b.value for b in error.baselines) > 0.1


def test_the_planted_mean_is_found_and_a_colluders_own_prototype_is_not() -> None:
    for noise in (0.0, 0.5):
        planted = one("prototype_recovered", "positive", noise)
        assert planted.interval is not None and planted.value == 1
        assert planted.interval[0] > max(b.value for b in planted.baselines)
        assert one("prototype_recovered", "negative", noise).value == 0


def test_noise_on_the_global_prototype_hides_the_victim() -> None:
    assert one("prototype_recovered", noise=0.5).value == 0
    assert one("prototype_relative_error", noise=0.5).value > 0.5


def test_by_hand_with_unequal_numbers_of_examples() -> None:
    # (1 * 4 + 3 * 8 + 2 * 1) / 6 = 5; colluders' mean (4 + 24) / 4 = 7
    assert recover_prototype(np.array([5.0]), np.array([7.0]), 4, 2).tolist() == [1.0]
    view = [broadcast([[5.0]], [0])]
    for k, (n, value) in enumerate(((1, 4.0), (3, 8.0), (2, 1.0))):
        local = {"classes": np.array([0]), "features": np.array([[value]], np.float32)}
        counts = {"classes": np.array([0]), "counts": np.array([n])}
        view += [_artifact(Kind.LOCAL_PROTOTYPES, local, k), _artifact(Kind.PROTO_COUNTS, counts, k)]
    claim = PrototypeCollusion().run(view, world().knowledge, np.random.default_rng(0))
    assert claim["feature"].tolist() == [[4.0], [8.0], [1.0]]
    assert claim["victim"].tolist() == [0, 1, 2] and claim["colluders"].tolist() == [2, 2, 2]
    assert claim["mean"].tolist() == [[5.2], [2.0], [7.0]]


def test_a_claim_reads_nothing_of_what_its_victim_sent() -> None:
    attack, rng = PrototypeCollusion(), np.random.default_rng(0)
    claim = attack.run(world().artifacts, world().knowledge, rng)
    victim = int(claim["victim"][0])
    view = [
        replace(a, payload={**a.payload, "features": 9 * a.payload["features"]})
        if a.kind == Kind.LOCAL_PROTOTYPES and a.sender == Party.client(victim)
        else a
        for a in world().artifacts
    ]
    other = attack.run(view, world().knowledge, rng)
    own = claim["victim"] == victim
    assert own.any() and np.array_equal(claim["feature"][own], other["feature"][own])
    beside = ~own & np.isin(claim["label"], claim["label"][own])
    assert not np.array_equal(claim["feature"][beside], other["feature"][beside])


def test_too_many_holders_unknown_counts_or_no_broadcast_are_said_in_a_sentence() -> None:
    known, all_of_it = world().knowledge, world().artifacts
    assert PrototypeCollusion().not_applicable(all_of_it, known) == ""
    alone = PrototypeCollusion(PrototypeCollusion.Config(colluders=1))
    assert "held by at most 2 clients" in alone.not_applicable(all_of_it, known)
    without = [a for a in all_of_it if a.kind != Kind.PROTO_COUNTS]
    assert "how many examples" in PrototypeCollusion().not_applicable(without, known)
    without = [a for a in all_of_it if a.kind != Kind.LOCAL_PROTOTYPES]
    assert "own prototypes" in PrototypeCollusion().not_applicable(without, known)
    without = [a for a in all_of_it if a.kind != Kind.GLOBAL_PROTOTYPES]
    assert "no class was held" in PrototypeCollusion().not_applicable(without, known)


def lone_world() -> tuple[World, list[Artifact]]:
    """Of the second class one client is left; everybody reads the next round's global prototypes."""
    here = world()
    holder = next(a for a in here.artifacts if a.kind == Kind.LOCAL_PROTOTYPES)
    label = int(holder.payload["classes"][1])
    kept: list[Artifact] = []
    for a in here.artifacts:
        if a.kind in (Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS) and a.sender != holder.sender:
            stay = a.payload["classes"] != label
            a = replace(a, payload={k: v[stay] for k, v in a.payload.items()})
        if a.kind == Kind.GLOBAL_PROTOTYPES:
            features = a.payload["features"].copy()
            features[a.payload["classes"] == label] = holder.payload["features"][1]
            a = replace(a, payload={**a.payload, "features": features})
        kept.append(a)
    return here, kept


def test_a_class_with_one_holder_needs_no_collusion() -> None:
    here, view = lone_world()
    attack = PrototypeCollusion(PrototypeCollusion.Config(colluders=1))  # all other classes have three holders
    assert attack.not_applicable(view, here.knowledge) == ""
    claim = attack.run(view, here.knowledge, np.random.default_rng(0))
    assert claim["colluders"].tolist() == [0]
    evidence = attack.measure(claim, here, np.random.default_rng(1))
    (real,) = [e for e in evidence if e.control == "none" and e.measure == "prototype_recovered"]
    assert (real.value, real.place) == (1.0, "colluders = 0")
    assert real.strongest is not None and real.strongest.value == 0
    (negative,) = [e for e in evidence if e.control == "negative"]
    assert negative.value == 0


def test_settings_without_a_meaning_are_refused() -> None:
    for wrong in ({"colluders": 0}, {"exact": 1.0}, {"max_trials": 0}):
        with pytest.raises(UserError, match=f"{next(iter(wrong))} must be"):
            configure(PrototypeCollusion, wrong, "attacks[0]")
