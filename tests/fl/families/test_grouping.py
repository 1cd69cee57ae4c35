"""Grouping by distributions and the augmentation plan: known answers and what always holds."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from fedaudit.fl.families.augmentation_plan import (
    alter_images,
    select_images,
    select_offers,
    shortage,
    solve_requests,
    targets,
)
from fedaudit.fl.families.grouping import complementary, divergence, similar


def rows(k: int = 11, classes: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet([0.3] * classes, k)


def test_divergence_is_scipys() -> None:
    p, q = rows(2)
    assert divergence(p, q) == pytest.approx(entropy(p + 1e-5, q + 1e-5))
    assert divergence(p, p) == 0 and np.isfinite(divergence(np.array([1.0, -0.1]), np.array([0.0, 1])))


def test_similar_clients_meet_and_groups_are_even() -> None:
    a, b = np.eye(2)
    mixed = np.stack([a, b, a, b, a, b]) + 0.01 * rows(6, 2)
    rng = np.random.default_rng(0)
    assert similar(mixed, 2, rng) == [[0, 2, 4], [1, 3, 5]]
    assert similar(mixed, 1, rng) == [[0, 1, 2, 3, 4, 5]]
    assert similar(mixed, 6, rng) == similar(mixed, 9, rng) == [[k] for k in range(6)]


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_groups_partition_the_clients_even_if_all_but_one_are_alike(groups: int) -> None:
    same = np.repeat(rows(1), 9, axis=0)
    same[8] = rows(1, seed=3)
    found = similar(same, groups, np.random.default_rng(0))
    assert sorted(k for g in found for k in g) == list(range(9))
    sizes = [len(g) for g in found]
    assert max(sizes) - min(sizes) <= max(1, groups - 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("distinct", [1, 2, 5, 20])
@pytest.mark.parametrize("groups", [2, 3, 5, 10, 19, 20, 30])
def test_no_group_is_empty_however_many_clients_are_alike(distinct: int, groups: int) -> None:
    """Of any way to group: a group without clients has a generator or a chain that nobody trains."""
    alike = np.tile(rows(distinct), (20 // distinct, 1))
    for found in (similar(alike, groups, np.random.default_rng(0)), complementary(alike, [5] * 20, groups)):
        assert all(found) and sorted(k for g in found for k in g) == list(range(20))
    assert len(similar(alike, groups, np.random.default_rng(0))) == min(groups, 20)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 11, 20])
def test_complementary_groups_partition_the_clients(groups: int) -> None:  # T-GA-7
    found = complementary(rows(), list(range(1, 12)), groups)
    assert sorted(k for g in found for k in g) == list(range(11))
    assert max(len(g) for g in found) <= -(-11 // groups)


def test_complementary_clients_meet() -> None:
    a, b = np.eye(2)
    assert complementary(np.stack([a, a, b, b]), [5, 5, 5, 5], 2) == [[0, 2], [1, 3]]
    # weighted: 3's two classes at once are nearer to uniform than 1 and 2 with their sizes
    weighted = complementary(np.stack([a, b, b]), [10, 1, 10], 2)
    assert weighted == [[0, 2], [1]]


def test_the_plan_of_the_paper() -> None:  # T-GA-4, V6
    mixes = np.array([[0, 0], [1, 0], [0, 1.0]])
    missing = shortage(np.array([5, 3, 1]))
    assert missing.tolist() == [0, 2, 4]
    for solver in ("pinv", "nnls"):
        assert solve_requests(mixes, missing, 1.0, solver) == [2, 4]
        assert solve_requests(mixes, missing, 0.5, solver) == [1, 2]


def test_the_pseudo_inverse_overshoots_and_least_squares_do_not() -> None:  # V6
    mixes, missing = np.array([[0.6, 0.1], [0.3, 0.2], [0.1, 0.7]]), np.array([0, 4.0, 10])
    exact = np.linalg.pinv(mixes) @ missing
    assert exact == pytest.approx([-1.384833, 14.9317], abs=1e-5)
    assert solve_requests(mixes, missing, 1.0, "pinv") == [0, 14]
    assert solve_requests(mixes, missing, 1.0, "nnls") == [0, 14]  # here 14.44: nearer, the same whole number
    crossed, lack = np.array([[0.5, 0.6], [0.5, 0.1], [0.0, 0.3]]), np.array([0, 10.0, 0])
    [p, _], [n, _] = solve_requests(crossed, lack, 1.0, "pinv"), solve_requests(crossed, lack, 1.0, "nnls")
    assert p > n > 0


def test_clients_get_the_generators_that_differ_most() -> None:
    own, offers = (np.array([0.7, 0.2, 0.1]), np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]))
    assert select_offers(own, offers, 1) == [1] and select_offers(own, offers, 2) == [1, 2]
    assert select_offers(own, offers, 9) == [0, 1, 2]


def test_no_class_grows_beyond_its_target_and_shortages_are_made_up_from_own() -> None:  # T-GA-6
    rng = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 9 + [1] * 2 + [2] * 4)
    x, made = torch.rand(15, 1, 8, 8), torch.rand(12, 1, 8, 8)
    labels = torch.tensor([1] * 10 + [0] * 2)
    counts = torch.bincount(y, minlength=4).numpy()
    target = targets(counts.astype(float), 0.6)
    assert target == [0, 4, 3, 5]
    more, classes = select_images(x, y, made, labels, target, rng)
    added = torch.bincount(classes, minlength=4).tolist()
    assert added == [0, 4, 3, 0]  # class 3: nothing of its own, nothing generated
    assert torch.equal(more[:4], made[:4]) and more.shape == (7, 1, 8, 8)
    more, classes = select_images(x, y, made[:1], labels[:1], [0, 9, 9, 0], rng)
    assert torch.bincount(classes, minlength=4).tolist() == [0, 3, 4, 0]  # at most doubled


def test_altered_images_are_near_their_originals_and_not_the_same() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.zeros(50, 1, 20, 20)
    x[:, :, 5:15, 5:15] = 1
    out = alter_images(x, rng)
    assert out.min() >= 0 and out.max() <= 1 and not torch.equal(out, x)
    assert (out - x).abs().mean() < 0.1 and abs(float(out.mean() - x.mean())) < 0.01
    ramp = torch.linspace(0, 1, 20).expand(200, 1, 20, 20)
    right = alter_images(ramp, rng, mirror=True)[..., -1].mean((1, 2))
    assert 60 < int((right < 0.5).sum()) < 140  # about half of them mirrored
