"""Whether a client owns a class is seen in its update; shuffled owners and frozen heads are not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.rare_class import RareClass
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.updates.updates import Updates


@cache
def world(second: int, masked: bool = False) -> Updates:
    return Updates(second=second, masked=masked)


@cache
def judged(second: int, masked: bool = False) -> list[Evidence]:
    attack, rng = RareClass(), np.random.default_rng(0)
    claim = attack.run(world(second, masked).artifacts, world(second, masked).knowledge, rng)
    return attack.measure(claim, world(second, masked), rng)


def auc(second: int, **condition: str) -> Evidence:
    wanted = {**condition, "rule": "row sums"}
    return next(e for e in judged(second) if e.measure == "auc" and e.condition == wanted and e.control == "none")


def test_classes_are_seen_even_with_two_examples_of_forty_two() -> None:
    many, few = auc(20, examples="21 to 100"), auc(2, examples="2")
    assert many.value > 0.98
    assert many.interval is not None and many.interval[0] > 0.5
    assert few.value > 0.9 and few.trials == 10
    assert [b.name for b in many.baselines] == ["chance", "how frequent the class is in auxiliary data"]


def test_a_masked_softmax_is_read_by_the_length_of_rows() -> None:
    assert all(
        e.value == 1
        for e in judged(20, masked=True)
        if e.measure == "auc" and e.control == "none" and e.condition["rule"] == "row norms"
    )


def test_owners_shuffled_among_clients_are_not_found_and_the_planted_ones_are() -> None:
    control, _ = [e for e in judged(20) if e.control == "negative"]
    assert control.interval is not None and control.interval[0] <= 0.5 <= control.interval[1]
    planted, _ = [e for e in judged(20) if e.control == "positive"]
    assert planted.value > 0.99


@pytest.mark.nightly
def test_the_control_keeps_within_its_interval_over_many_shuffles() -> None:
    attack, fired = RareClass(), 0
    rng = np.random.default_rng(0)
    claim = attack.run(world(20).artifacts, world(20).knowledge, rng)
    for _ in range(30):
        for e in attack.measure(claim, world(20), rng):
            if e.control == "negative":
                assert e.interval is not None
                fired += e.interval[0] > 0.5
    assert e.looks == 2  # with ten clients that all are found, more looks would never let it fire
    assert fired <= 2  # of 60; below 0.5 % each are promised


def test_one_class_is_asked_about_by_itself() -> None:
    attack, rng = RareClass(RareClass.Config(label=4)), np.random.default_rng(0)
    found = attack.measure(attack.run(world(20).artifacts, world(20).knowledge, rng), world(20), rng)
    own = next(e for e in found if e.condition.get("class") == "4")
    assert own.trials == 2  # clients 2 and 5 own it
    with pytest.raises(UserError, match="the model has 10 classes"):
        RareClass(RareClass.Config(label=10)).run(world(20).artifacts, world(20).knowledge, rng)


def test_without_uploads_it_does_not_apply() -> None:
    assert "no client sends" in RareClass().not_applicable([], world(20).knowledge)
    assert RareClass().not_applicable(world(20).artifacts, world(20).knowledge) == ""


def test_the_score_of_an_upload_does_not_depend_on_its_size() -> None:
    # a step of half the length, by hand: the scores are those of the whole step
    start = next(a for a in world(20).artifacts if a.kind == Kind.GLOBAL_MODEL)
    halved = [
        replace(a, payload={k: (v + start.payload[k]) / 2 for k, v in a.payload.items()})
        if a.kind == Kind.LOCAL_MODEL
        else a
        for a in world(20).artifacts
    ]
    rng = np.random.default_rng(0)
    a, b = (RareClass().run(v, world(20).knowledge, rng) for v in (halved, world(20).artifacts))
    np.testing.assert_allclose(a["score"], b["score"], atol=1e-3)
