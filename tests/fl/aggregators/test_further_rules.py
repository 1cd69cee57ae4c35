"""Rules that the field compares, against what their papers say of them."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregators.deep_sight import energy_shares, suspect
from fedaudit.fl.aggregators.fl_detector import is_split, split
from fedaudit.fl.aggregators.nearest_subset import find_closest
from fedaudit.fl.aggregators.sign_guard import find_largest_cluster
from fedaudit.fl.runtime.errors import UserError
from tests.fl.aggregators.test_rules import combined, context, rule
from tests.fl.aggregators.test_second_programs import combine
from tests.fl.methods.worlds_of_methods import continues
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, run, same

NONEXPANSIVE = [n for n in catalog.names("aggregators") if catalog.load("aggregators", n).nonexpansive]


@pytest.mark.parametrize("name", ["mda", "monna", "mean_around_median", "caf"])
def test_with_nobody_assumed_malicious_it_is_the_mean_and_with_one_the_intruder_weighs_little(name: str) -> None:
    rows = np.array([[1, 2], [2, 1], [1, 1], [2, 2], [1000, -1000]], np.float32)
    assert combine(name, rows, f=0).change.tolist() == pytest.approx(rows.mean(0).tolist(), rel=1e-6)
    assert np.abs(combine(name, rows, f=1).change.numpy() - 1.5).max() <= 0.5 + 1e-9


def test_the_closest_subset_is_that_of_trying_all() -> None:
    from itertools import combinations

    for i in range(40):
        rng = np.random.default_rng(i)
        n, f = int(rng.integers(3, 9)), 0
        f = int(rng.integers(0, (n - 1) // 2 + 1))
        points = rng.integers(0, 4, (n, 2)).astype(float)  # many ties
        far = ((points[:, None] - points[None]) ** 2).sum(2)
        best = min(combinations(range(n), n - f), key=lambda s: (far[np.ix_(s, s)].max(), s))
        assert find_closest(far, f) == list(best)
    with pytest.raises(UserError, match="too many subsets"):
        combine("mda", np.eye(31), f=13)


def test_a_share_of_many_clients_is_refused_before_any_of_them_is_heard() -> None:
    rule("mda", f=0.25).check_clients(48)
    with pytest.raises(UserError, match="with f = 13 tries too many subsets of 49 uploads"):
        rule("mda", f=0.25).check_clients(49)


def test_monna_trusts_one_client_and_in_its_absence_the_one_among_the_others() -> None:
    rows = [(0.0,), (1.0,), (1.1,), (9.0,), (9.1,), (9.2,)]
    assert combined(rule("monna", f=2, trusted=3), rows).kept.keys() == {2, 3, 4, 5}
    assert combined(rule("monna", f=2, trusted=0), rows).kept.keys() == {0, 1, 2, 3}
    assert combined(rule("monna", f=2, trusted=7), rows).kept.keys() == {2, 3, 4, 5}


# Signs, lengths and directions ------------------------------------------------------------


def test_the_learning_rate_turns_where_signs_do_not_agree() -> None:
    rows = np.array([[1, 1, 1], [1, 1, -1], [1, -1, -1], [1, 0, 4], [2, 0, 0]], np.float32)
    # sums of signs: 5, 1, -1 + 1 = 0 ... of five: theta 3 asks for 3
    found = combine("robust_learning_rate", rows, theta=0.6).change
    mean, signs = rows.mean(0), np.abs(np.sign(rows).sum(0))
    assert found.tolist() == pytest.approx(np.where(signs >= 3, mean, -mean).tolist())
    free = combine("robust_learning_rate", rows, theta=0.0).change
    assert free.tolist() == pytest.approx(mean.tolist())


def test_sign_guard_leaves_out_odd_lengths_and_odd_signs_and_clips_to_the_median() -> None:
    rng = np.random.default_rng(1)
    rows = np.abs(rng.standard_normal((9, 200))) * np.where(np.arange(200) < 120, 1, -1)
    rows[6] *= 50  # too long
    rows[7] = -np.abs(rows[7])  # other signs
    rows[8] *= 0.01  # too short
    found = combine("sign_guard", rows, coordinates=1.0)
    assert set(found.kept) == {0, 1, 2, 3, 4, 5}
    long = np.linalg.norm(rows.astype(np.float32), axis=1)
    middle = np.median(long)
    clipped = rows[:6] * np.minimum(1, middle / long[:6])[:, None]
    assert found.change.numpy() == pytest.approx(clipped.mean(0), rel=1e-5)
    loose = combine("sign_guard", rows, coordinates=1.0, low=0.0, high=1e9)
    assert {6, 8} <= set(loose.kept) and 7 not in loose.kept


# Histories --------------------------------------------------------------------------------


def test_sign_guard_tells_odd_signs_from_those_that_are_equal_but_for_rounding() -> None:
    """Distances of equal shares come out as 7e-9, which is no bandwidth."""
    odd = torch.tensor([[1.0, 1.0, -1.0]] * 2 + [[1.0, 1.0, 1.0]] * 2)
    assert find_largest_cluster(odd).tolist() == [True, True, False, False]


def test_fl_detector_leaves_out_those_whom_nothing_predicts_for_good() -> None:
    rng, state, kept = np.random.default_rng(5), {}, []
    target, w = rng.standard_normal((12, 20)) * 0.3, np.zeros(20)
    for _ in range(14):
        rows = 0.3 * (target - w)
        rows[:3] = rng.standard_normal((3, 20))  # another random vector every round
        found = combine("fl_detector", rows, {"state": state}, window=3)
        state, w = found.state, w + found.change.numpy()
        kept.append(set(found.kept))
    assert kept[0] == set(range(12)) and kept[-1] == set(range(3, 12)) and state["banned"] == [0, 1, 2]
    honest: Any = {}
    for _ in range(10):
        found = combine("fl_detector", rng.standard_normal((12, 20)), {"state": honest}, window=3)
        honest = found.state
    assert len(found.kept) == 12


def test_fl_detector_decides_on_those_it_knows_while_others_are_new_and_on_no_newcomer() -> None:
    rng, state = np.random.default_rng(5), {}
    target, w = rng.standard_normal((13, 20)) * 0.3, np.zeros(20)
    for t in range(14):
        rows = 0.3 * (target - w)
        rows[:3] = rng.standard_normal((3, 20))
        clients = [*range(12), 100 + t]  # the last is heard this once
        table = torch.from_numpy(rows.astype(np.float32))
        weights = torch.ones(13).double()
        found = rule("fl_detector", window=3).combine(table, weights, clients, context(state=state))
        state, w = found.state, w + found.change.numpy()
    assert state["banned"] == [0, 1, 2] and set(found.kept) == {*range(3, 12), 113}


def test_scores_are_split_in_two_where_the_squares_are_least() -> None:
    scores = torch.tensor([0.1, 0.9, 0.11, 0.12, 0.95, 0.1]).double()
    assert split(scores) == [False, True, False, False, True, False]
    rng = torch.Generator().manual_seed(1)
    assert is_split(scores, rng)
    assert not is_split(torch.linspace(0, 1, 9).double(), rng)
    assert not is_split(torch.ones(9).double(), rng)


def test_scores_that_differ_by_rounding_alone_ban_nobody() -> None:
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        assert not is_split(0.2 * (1 + 1e-7 * torch.randn(5, generator=rng).double()), rng)


# The last layer ---------------------------------------------------------------------------


def test_deep_sight_suspects_uploads_of_few_labels_and_their_group_falls_with_them() -> None:
    bias = torch.tensor([[1.0, -1.0, 2.0], [0.0, 0.0, 3.0]]).double()
    matrix = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0], [1.0, -2.0]]]).double()
    assert energy_shares(bias, matrix).tolist() == [pytest.approx([9 / 14, 1 / 14, 4 / 14]), [0, 0, 1]]
    # counts above a third of the largest share: 2, 2, 2, 1
    shares = torch.tensor([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.1, 0.4, 0.5], [0.9, 0.05, 0.05]]).double()
    assert suspect(shares).tolist() == [False, False, False, True]
    rng = np.random.default_rng(2)
    rows = np.hstack([rng.standard_normal((10, 30)) + 2, np.ones((10, 10)) + 0.1 * rng.standard_normal((10, 10))])
    rows[8:, :] = 0.0
    rows[8:, [0, 1, 2]] = 5.0 + 0.01 * rng.standard_normal((2, 3))
    rows[8:, 30] = 5.0  # all of it in the first class
    head = {"head": ("w", "b"), "columns": {"w": slice(0, 30), "b": slice(30, 40)}}
    found = combine("deep_sight", rows, more=head)
    assert set(found.kept) == set(range(8))
    long = np.linalg.norm(rows.astype(np.float32), axis=1)
    clipped = rows[:8] * np.minimum(1, np.median(long) / long[:8])[:, None]
    assert found.change.numpy() == pytest.approx(clipped.mean(0), rel=1e-5)
    with pytest.raises(UserError, match="reads weights and bias of the last layer"):
        combine("deep_sight", rows)


# A clipped and noised model ---------------------------------------------------------------


def test_crfl_clips_the_model_and_not_the_change_and_adds_its_noise() -> None:
    start = {"start": {"w": torch.tensor([3.0, 4.0])}}
    rows = np.array([[3.0, 4.0], [3.0, 4.0]])  # to (6, 8), of length 10
    still = combine("crfl", rows, more=start, rho=5.0, sigma=0.0)
    assert still.change.tolist() == pytest.approx([0.0, 0.0])
    assert combine("crfl", rows, more=start, rho=50.0, sigma=0.0).change.tolist() == pytest.approx([3.0, 4.0])
    many = {"start": {"w": torch.zeros(20_000)}}
    noise = combine("crfl", np.zeros((2, 20_000)), more=many, rho=5.0, sigma=0.7).change
    assert float(noise.std()) == pytest.approx(0.7, rel=0.03)
    with pytest.raises(UserError, match="clients of this method send changes"):
        combine("crfl", rows)


@pytest.mark.parametrize("name", NONEXPANSIVE)
def test_a_nonexpansive_rule_brings_no_two_means_further_apart(name: str) -> None:
    rng = np.random.default_rng(3)
    made = rule(name, **({"rho": 4.0, "sigma": 0.5} if name == "crfl" else {}))
    apart = []
    for spread in (0.01, 0.3, 3.0):
        uploads = rng.standard_normal((2, 6, 30)) * spread + rng.standard_normal(30)
        models = []
        for rows in uploads:
            averaging = made.begin(context())
            for client, row in enumerate(rows):
                start = {"w": torch.from_numpy(row / 2).float()}
                averaging.add(client, {"w": torch.from_numpy(row).float()}, 1.0 + client, start)
            models.append(averaging.value()["w"].double().numpy())
        means = [np.average(rows, axis=0, weights=1.0 + np.arange(6)) for rows in uploads]
        apart.append(np.linalg.norm(models[0] - models[1]) / np.linalg.norm(means[0] - means[1]))
    assert all(0 < a <= 1 + 1e-5 for a in apart)
    assert name == "mean" or min(apart) < 0.9  # where both are clipped


# In a federation --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fl_detector", "clipped_clustering", "crfl"])
def test_a_run_continues_to_the_same_bits(name: str, tmp_path: Any) -> None:
    made = rule(name, **({"window": 1} if name == "fl_detector" else {}))
    assert continues(lambda: method("fedavg"), tmp_path / name, aggregator=made)  # type: ignore[misc]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name",
    ["mda", "monna", "mean_around_median", "caf", "sign_guard", "robust_learning_rate", "deep_sight", "crfl"],
)
def test_a_federation_under_the_rule_is_finite_and_not_that_of_the_mean(name: str) -> None:
    world = run(method("fedavg"), aggregator=rule(name), script=EVERYONE)  # type: ignore[arg-type]
    assert all(bool(torch.isfinite(v).all()) for v in world.model.values())
    assert not same(world, run(method("fedavg"), script=EVERYONE))  # type: ignore[arg-type]
