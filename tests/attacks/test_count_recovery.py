"""Counts in clear are read exactly; noise costs what it costs; blind adversaries do neither."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.attack import Evidence
from attacks.inference.count_recovery import CountRecovery, decode, overlap, spread
from fl.artifact import Artifact, Kind
from fl.errors import UserError
from tests.attacks.world import World

WORLD = World(sizes=(), clients=6)


def judged(view: list[Artifact]) -> dict[tuple[str, str], Evidence]:
    attack = CountRecovery()
    claim = attack.run(view, WORLD.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    return {(e.measure, e.control): e for e in found}


def noised(scale: float) -> list[Artifact]:
    rng = np.random.default_rng(0)
    return [
        replace(a, payload={**a.payload, "counts": a.payload["counts"] + rng.normal(0, scale, 2)})
        for a in WORLD.artifacts
        if a.kind == Kind.PROTO_COUNTS
    ]


def test_counts_in_clear_are_recovered_exactly() -> None:
    found = judged(WORLD.artifacts)
    exact = found["count_exact_match", "none"]
    assert (exact.value, exact.trials) == (1.0, 6)
    assert exact.interval == pytest.approx((0.5407, 1.0), abs=1e-4)  # 6 of 6, Clopper-Pearson
    assert {b.name: b.value for b in exact.baselines} == {"uniform": 0, "global prior": 0}
    assert found["count_overlap", "none"].value == 1
    assert found["count_abs_error", "none"].value == 0


def test_noise_hides_exact_counts_and_shows_its_error() -> None:
    found = judged(noised(20.0))
    assert found["count_exact_match", "none"].value < 0.5
    error = found["count_abs_error", "none"]
    assert error.interval is not None and error.interval[0] < error.value < error.interval[1]
    assert 1 < error.value < 7  # two of ten classes are off by 16 on average


def test_rounding_undoes_noise_below_one_half() -> None:
    assert judged(noised(0.05))["count_exact_match", "none"].value == 1


def test_the_planted_counts_are_found_and_another_clients_are_not() -> None:
    found = judged(noised(20.0))
    assert found["count_exact_match", "positive"].value == 1
    assert found["count_exact_match", "negative"].value == 0


def test_label_counts_are_read_beside_proto_counts() -> None:
    whole = [
        replace(
            a, kind=Kind.LABEL_COUNTS, payload={"counts": WORLD.label_counts(a.sender.index or 0)}
        )
        for a in WORLD.artifacts
        if a.kind == Kind.PROTO_COUNTS
    ]
    attack = CountRecovery()
    claim = attack.run([*WORLD.artifacts, *whole], WORLD.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    exact = [e for e in found if e.measure == "count_exact_match" and e.control == "none"]
    assert {(e.condition["kind"], e.value) for e in exact} == {
        ("proto_counts", 1.0),
        ("label_counts", 1.0),
    }


def test_classes_of_few_examples_are_named() -> None:
    attack = CountRecovery(CountRecovery.Config(small=60))
    claim = attack.run(WORLD.artifacts, WORLD.knowledge, np.random.default_rng(0))
    (small,) = [e for e in attack.measure(claim, WORLD, np.random.default_rng(1))
                if e.measure == "small_cells_found"]  # fmt: skip
    counts = np.stack([WORLD.label_counts(k) for k in range(6)])
    assert small.trials == ((counts > 0) & (counts <= 60)).sum() > 0
    assert small.value == 1
    k, c = np.argwhere((counts > 0) & (counts <= 60))[0]
    assert f"client {k} class {c}: {counts[k, c]}" in small.note


def test_totals_are_spread_by_largest_remainders() -> None:
    assert spread(np.array([10, 7]), np.array([1.0, 1.0, 1.0])).tolist() == [[4, 3, 3], [3, 2, 2]]
    assert spread(np.array([10]), np.array([0.46, 0.33, 0.21])).tolist() == [[5, 3, 2]]


def test_overlap_is_the_share_in_the_right_class() -> None:
    true = np.array([[6, 4, 0]])
    assert overlap(np.array([[3, 3, 4]]), true).tolist() == pytest.approx([0.6])
    assert overlap(np.array([[12, 8, 0]]), true).tolist() == pytest.approx([0.5])


def test_counts_of_other_classes_than_the_models_are_refused() -> None:
    artifact = next(a for a in WORLD.artifacts if a.kind == Kind.PROTO_COUNTS)
    with pytest.raises(UserError, match="the model has 1 classes"):
        decode(artifact, 1)


def test_without_counts_it_does_not_apply() -> None:
    silent = [a for a in WORLD.artifacts if a.kind != Kind.PROTO_COUNTS]
    assert "no client sends" in CountRecovery().not_applicable(silent, WORLD.knowledge)
    assert CountRecovery().not_applicable(WORLD.artifacts, WORLD.knowledge) == ""
