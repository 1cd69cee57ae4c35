"""Counts in clear are read exactly; noise costs what it costs; baselines do neither."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.attacks.counts.count_recovery import CountRecovery, decode
from fedaudit.attacks.evaluation.count_evidence import blind_counts, measure_revelations, overlap, spread
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
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
        replace(a, kind=Kind.LABEL_COUNTS, payload={"counts": WORLD.label_counts(a.sender.index or 0)})
        for a in WORLD.artifacts
        if a.kind == Kind.PROTO_COUNTS
    ]
    attack = CountRecovery()
    claim = attack.run([*WORLD.artifacts, *whole], WORLD.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    exact = [e for e in found if e.measure == "count_exact_match" and e.control == "none"]
    assert {(e.condition["kind"], e.value) for e in exact} == {("proto_counts", 1.0), ("label_counts", 1.0)}


def test_labels_that_come_with_features_are_counted() -> None:
    view = [
        Artifact(
            id=f"r00000/client-{k}.uplink/features",
            kind=Kind.FEATURES,
            channel=Channel.UPLINK,
            round=0,
            sender=Party.client(k),
            seen_by=("server",),
            payload={"labels": own.y, "features": np.ones((len(own), 3))},
        )
        for k, own in enumerate(WORLD.clients)
    ]
    found = judged(view)
    assert found["count_exact_match", "none"].value == found["count_exact_match", "positive"].value == 1
    assert found["count_exact_match", "negative"].value == 0


def test_classes_of_few_examples_are_named() -> None:
    attack = CountRecovery(CountRecovery.Config(small=60))
    claim = attack.run(WORLD.artifacts, WORLD.knowledge, np.random.default_rng(0))
    (small,) = [
        e for e in attack.measure(claim, WORLD, np.random.default_rng(1)) if e.measure == "small_cells_found"
    ]
    counts = np.stack([WORLD.label_counts(k) for k in range(6)])
    assert small.trials == ((counts > 0) & (counts <= 60)).sum() > 0
    assert small.value == 1
    k, c = np.argwhere((counts > 0) & (counts <= 60))[0]
    assert f"client {k} class {c}: {counts[k, c]}" in small.note


@pytest.mark.parametrize("seed", range(5))
def test_classes_said_of_other_clients_are_no_finding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true, said = (rng.choice([0, 1, 3, 5, 30], (20, 10)) for _ in range(2))
    found = CountRecovery()._small(said, true, np.arange(20), {})
    assert found[0].value > 0.2  # many are named by chance
    (own,) = CountRecovery()._small(true, true, np.arange(20), {})
    for e, is_told in ((found[0], False), (own, True)):
        assert e.interval is not None and e.strongest is not None
        assert (e.interval[0] > e.strongest.value) is is_told


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


def repeated(rounds: int, scale: float, seed: int = 0) -> list[Artifact]:
    """Label counts of every client in several rounds, each with fresh noise on them."""
    rng = np.random.default_rng(seed)
    return [
        Artifact(
            id=f"r{t}/{k}",
            kind=Kind.LABEL_COUNTS,
            channel=Channel.UPLINK,
            round=t,
            sender=Party.client(k),
            seen_by=("server",),
            payload={"counts": WORLD.label_counts(k) + scale * rng.normal(size=10)},
        )
        for t in range(rounds)
        for k in range(6)
    ]


def test_noise_is_averaged_away_over_rounds() -> None:
    one, many = judged(repeated(1, 2.0)), judged(repeated(50, 2.0))
    assert one["count_exact_match", "none"].value == 0
    assert many["count_exact_match", "none"].value >= 0.5
    assert many["count_abs_error", "none"].value < 0.2 * one["count_abs_error", "none"].value


def test_what_is_left_after_noise_is_its_interval() -> None:
    attack = CountRecovery(CountRecovery.Config(noise_std=3.0))
    claim = attack.run(repeated(4, 3.0), WORLD.knowledge, np.random.default_rng(0))
    assert claim["deviation"].tolist() == [1.5] * 6
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    (left,) = [e for e in found if e.measure == "count_possible_values"]
    # +- 1.96 * 1.5 around each count holds 5.9 whole numbers, fewer at counts of 0
    assert 3 < left.value < 5.9 and not left.higher_is_worse
    assert left.baselines[0].value > 50


def test_the_rounds_themselves_show_the_noise_where_none_is_published() -> None:
    attack = CountRecovery()
    claim = attack.run(repeated(40, 3.0), WORLD.knowledge, np.random.default_rng(0))
    np.testing.assert_allclose(claim["deviation"], 3 / np.sqrt(40), rtol=0.15)
    clear = attack.run(repeated(40, 0.0), WORLD.knowledge, np.random.default_rng(0))
    assert np.isnan(clear["deviation"]).all()


def test_the_interval_holds_as_many_true_counts_as_it_says() -> None:
    inside = []
    for seed in range(30):
        attack = CountRecovery(CountRecovery.Config(noise_std=20.0))
        claim = attack.run(repeated(2, 20.0, seed), WORLD.knowledge, np.random.default_rng(0))
        true = np.stack([WORLD.label_counts(k) for k in range(6)])
        reach = 1.96 * claim["deviation"][:, None]
        inside.append((np.abs(claim["read"] - true) <= reach).mean())
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_oversampled_volumes_show_the_least_of_all_rounds() -> None:
    true = WORLD.label_counts(0)
    raised = np.where(true > 0, np.maximum(true, 60), 0)
    view = [
        replace(
            repeated(1, 0.0)[0], id=f"v{t}/counts", round=t, kind=Kind.CLASS_VOLUME, payload={"counts": counts}
        )
        for t, counts in enumerate((raised, true, raised))
    ]
    claim = CountRecovery().run(view, WORLD.knowledge, np.random.default_rng(0))
    assert claim["counts"].tolist() == [true.tolist()]


def test_the_total_undoes_oversampling_of_one_class_and_halves_it_between_two() -> None:
    for sent, total, expected in (
        ([30, 12, 0, 20], 55, [30, 5, 0, 20]),  # 55 - 30 - 20
        ([30, 12, 12, 20], 58, [30, 4, 4, 20]),
        ([30, 12, 0, 20], 62, [30, 12, 0, 20]),  # nothing was added
        ([30, 12, 0, 20], 40, [30, 12, 0, 20]),  # impossible: another rule raised them
    ):
        counts = np.array([*sent, 0, 0, 0, 0, 0, 0])
        first = replace(
            repeated(1, 0.0)[0], id="m/class_volume", kind=Kind.CLASS_VOLUME, payload={"counts": counts}
        )
        size = replace(first, id="m/num_examples", kind=Kind.NUM_EXAMPLES, payload={"count": np.array(total)})
        claim = CountRecovery().run([first, size], WORLD.knowledge, np.random.default_rng(0))
        assert claim["counts"][0, :4].tolist() == expected


def test_a_noised_distribution_is_scaled_by_the_number_of_examples_sent_with_it() -> None:
    counts = WORLD.label_counts(0)
    first = replace(
        repeated(1, 0.0)[0],
        id="m/noised_label_dist",
        kind=Kind.NOISED_LABEL_DIST,
        payload={"counts": counts / counts.sum() + 1e-5},
    )
    total = replace(first, id="m/num_examples", kind=Kind.NUM_EXAMPLES, payload={"count": np.array(counts.sum())})
    # after augmentation the same client reports another distribution of more images
    later = [
        replace(first, id="n/noised_label_dist", round=9, payload={"counts": np.full(10, 0.1)}),
        replace(total, id="n/num_examples", round=9, payload={"count": np.array(500)}),
    ]
    attack = CountRecovery(CountRecovery.Config(noise_std=1e-5))
    claim = attack.run([*later, first, total], WORLD.knowledge, np.random.default_rng(0))
    assert claim["counts"].tolist() == [counts.tolist()]
    assert "no client sends" in attack.not_applicable([first], WORLD.knowledge)


def test_counts_of_evenly_spread_data_reveal_nothing_of_people_and_small_groups_do() -> None:
    even = np.full((10, 4), 25)
    flat = {e.measure: e.value for e in measure_revelations(even, even, blind_counts(even, np.ones(4)), 5, {})}
    assert flat == {"examples_in_small_cells": 0.0}
    odd = even.copy()
    odd[0] = [0, 0, 4, 96]
    odd[:, 0] = [0] * 9 + [25]
    told = {e.measure: e for e in measure_revelations(odd, odd, blind_counts(odd, np.ones(4)), 5, {})}
    assert told["examples_in_small_cells"].value == 4 / odd.sum()
    assert told["rare_class_holders"].value == 0.1  # the last client alone holds the first class
    wrong = {e.measure: e.value for e in measure_revelations(odd + 1, odd, blind_counts(odd, np.ones(4)), 5, {})}
    assert wrong == {"examples_in_small_cells": 0.0, "rare_class_holders": 0.1}
