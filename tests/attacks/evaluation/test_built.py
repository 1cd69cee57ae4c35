"""What an attack builds of a claim: once, and anew for another claim or another truth."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import list_latest
from tests.contracts.attack_worlds import made, stage
from tests.contracts.played import claim

# Attacks that build trials; one of every machine for them
BUILDERS = {
    "ridge": "fedaudit.attacks.evaluation.prototype_inversion.ImageTrials",
    "idlg": "fedaudit.attacks.evaluation.update_inversion.make_buckets",
    "condensed_recovery": "fedaudit.attacks.condensed.condensed_recovery.ImageTrials",
    "condensed_membership": "fedaudit.attacks.evaluation.tracing.Tracer",
    "prototype_membership": "fedaudit.attacks.evaluation.tracing.Tracer",
    "prototype_difference": "fedaudit.attacks.prototypes.prototype_difference.measure_pairs",
    "loss_threshold": "fedaudit.attacks.evaluation.model_membership.ModelTrials",
}


def test_it_is_built_once_for_a_claim_and_a_truth_and_anew_for_others() -> None:
    calls = list[Any]()

    def build(claim: Any, truth: Any, rng: np.random.Generator) -> int:
        calls.append(claim)
        return len(calls)

    build_once, truths = BuiltOnce(build), (object(), object())
    first, second = {"a": np.zeros(1)}, {"a": np.zeros(1)}
    given: Any = [(first, truths[0]), (first, truths[0]), (second, truths[0]), (second, truths[1])]
    assert [build_once(*pair) for pair in given] == [1, 1, 2, 3]


@pytest.mark.sample(2)
@pytest.mark.dear("ridge", "condensed_recovery")
@pytest.mark.parametrize("name", BUILDERS)
def test_all_that_is_asked_of_a_claim_builds_its_trials_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, attribute = BUILDERS[name].rpartition(".")
    build, calls = getattr(__import__(module, fromlist=[attribute]), attribute), list[int]()

    def count(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return build(*given, **named)

    monkeypatch.setattr(BUILDERS[name], count)
    attack, truth, said, rng = made(name), stage(name).truth, claim(name), np.random.default_rng(0)
    attack.measure(said, truth, rng)
    people = attack.count_people(said, truth, rng)
    attack.choose_remedy(said, truth, people)
    attack.galleries(said, truth)
    attack.curves(said, truth)
    assert len(calls) == 1


@cache
def columns() -> dict[str, Any]:
    rows = [
        ("recorded", 0, 1, "update"),
        ("recorded", 0, 3, "update"),
        ("recorded", 0, 3, "update"),
        ("recorded", 0, 2, "model"),
        ("recorded", 1, 2, "update"),
        ("replayed", 0, 1, "update"),
    ]
    names = ("origin", "sender", "round", "sort")
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def test_the_latest_are_each_senders_newest_and_all_that_was_planted() -> None:
    assert list_latest(columns()).tolist() == [1, 2, 4, 5]
    assert list_latest(columns(), columns()["sort"]).tolist() == [1, 2, 3, 4, 5]
