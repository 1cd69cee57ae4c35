"""Differencing: what joined a class is recovered to rounding, at any n; a drifting extractor hides it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_difference import PrototypeDifference
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import Architecture, World

SIZES = (1, 10, 40)
GROWS = PrototypeDifference.Config(grows=True)


@cache
def world() -> World:
    return World(sizes=(), clients=5)  # two whole classes of about 70 images each


@cache
def pairs(dtype: str = "float32") -> tuple[Artifact, ...]:
    """Twenty pairs of each size; the images behind them are entered in the world's groups."""
    rng, found = np.random.default_rng(1), []
    models = {a.sender: a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL}
    for n in SIZES:
        for i in range(20):
            k, label = i % 5, 2 * (i % 5) + i // 5 % 2
            model = Architecture()(models[Party.client(k)].payload)
            pool = world().clients[k].of_class(label)
            group = pool[rng.choice(len(pool), n + 1, replace=False)]
            for size, name in ((n, "before"), (n + 1, "after")):
                mean = model.features(group[:size]).astype(np.float64).mean(0, keepdims=True)
                world().groups[f"pair{n}/{i}/{name}/{dtype}"] = group[:size]
                found.append(
                    Artifact(
                        id=f"pair{n}/{i}/{name}/{dtype}",
                        kind=Kind.LOCAL_PROTOTYPES,
                        channel=Channel.UPLINK,
                        round=3,
                        sender=Party.client(k),
                        seen_by=("server",),
                        payload={"classes": np.array([label]), "features": mean.astype(dtype)},
                        origin="replayed",
                        note={"n": size, "pair": f"{n}/{i}"},
                    )
                )
    return tuple(found)


def judged(view: list[Artifact], **settings: int) -> list[Evidence]:
    attack = PrototypeDifference(PrototypeDifference.Config(grows=True, **settings))
    claim = attack.run(view, world().knowledge, np.random.default_rng(0))
    return attack.measure(claim, world(), np.random.default_rng(0))


@cache
def plain() -> list[Evidence]:
    return judged([*world().artifacts, *pairs()])


def one(found: list[Evidence], measure: str, n: float) -> Evidence:
    return next(e for e in found if e.measure == measure and e.condition.get("n") == n)


@pytest.mark.parametrize("n", SIZES)
def test_one_image_is_recovered_to_rounding_at_any_size(n: float) -> None:
    error = one(plain(), "feature_relative_error", n)
    assert error.value < 1e-4 and not error.higher_is_worse
    assert min(b.value for b in error.baselines) > 0.1
    rank = one(plain(), "named", n)
    assert rank.value == 1 and rank.trials == 20
    assert all(b.value < 0.3 for b in rank.baselines)


def test_half_precision_leaves_an_error_that_grows_with_n() -> None:
    view = [*world().artifacts, *pairs("float16")]
    errors = [one(judged(view), "feature_relative_error", n).value for n in SIZES]
    assert 1e-4 < errors[0] < errors[1] < errors[2]


def test_by_hand_a_feature_that_left_is_found_as_one_that_joined() -> None:
    local = next(a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL)
    start = next(a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL)
    view = [start]
    for round, n, value in ((3, 4, 2.0), (4, 3, 1.0)):  # 4 * 2 - 3 * 1 = 5
        payload = {"classes": np.array([0]), "features": np.full((1, 64), value, np.float32)}
        view += [
            replace(local, round=round),
            replace(local, round=round, id=f"p{round}", kind=Kind.LOCAL_PROTOTYPES, payload=payload),
            replace(
                local,
                round=round,
                id=f"n{round}",
                kind=Kind.PROTO_COUNTS,
                payload={"classes": np.array([0]), "counts": np.array([n])},
            ),
        ]
    claim = PrototypeDifference().run(view, world().knowledge, np.random.default_rng(0))
    assert claim["feature"].tolist() == [[5.0] * 64]
    assert (claim["n"].tolist(), claim["moved"].tolist()) == ([4], [-1])
    assert PrototypeDifference().not_applicable(view, world().knowledge) == ""
    assert (claim["earlier"].tolist(), claim["later"].tolist()) == (["p3"], ["p4"])


def test_an_extractor_that_changed_in_between_hides_the_image() -> None:
    drifted = []
    for a in pairs():
        noise = np.random.default_rng(len(drifted)).normal(0, 0.1, a.payload["features"].shape)
        changed = a.payload["features"] + noise * (a.id.split("/")[-2] == "after")
        drifted.append(replace(a, payload={**a.payload, "features": changed.astype(np.float32)}))
    found = judged([*world().artifacts, *drifted])
    assert one(found, "feature_relative_error", 40).value > 1


def test_the_planted_pairs_are_found_and_images_of_nobody_are_not() -> None:
    assert one(plain(), "named", 1).control == "positive"
    assert one(plain(), "named", 10).control == "positive"
    (control,) = [e for e in plain() if e.control == "negative"]
    chance = control.baselines[0].value
    assert control.interval is not None and control.interval[0] <= chance <= control.interval[1]


def test_replayed_pairs_are_controls_where_data_stay_as_they_are() -> None:
    attack, rng = PrototypeDifference(), np.random.default_rng(0)
    claim = attack.run([*world().artifacts, *pairs()], world().knowledge, rng)
    assert {e.control for e in attack.measure(claim, world(), rng)} == {"positive", "negative"}


def test_without_two_counted_prototypes_it_does_not_apply() -> None:
    attack, still = PrototypeDifference(GROWS), PrototypeDifference()
    reason = attack.not_applicable(world().artifacts, world().knowledge)
    assert "differ by a known number" in reason
    view = [*world().artifacts, *pairs()]
    assert attack.not_applicable(view, world().knowledge) == ""
    assert "no class grew or shrank" in still.not_applicable(view, world().knowledge)
    with pytest.raises(UserError, match="gallery must be >= 3, got 2"):
        configure(PrototypeDifference, {"gallery": 2}, "attacks[0]")


def test_the_error_is_relative_to_the_length_of_the_true_features() -> None:
    attack, rng = PrototypeDifference(GROWS), np.random.default_rng(0)
    claim = attack.run([*world().artifacts, *pairs()], world().knowledge, rng)
    doubled = attack.measure({**claim, "feature": 2 * claim["feature"]}, world(), rng)
    assert one(doubled, "feature_relative_error", 10).value == pytest.approx(1, abs=1e-3)
