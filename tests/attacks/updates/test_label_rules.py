"""Rules on the last layer: exact where theory says so, on gradients that torch computed."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from fedaudit.attacks.evaluation.count_evidence import spread
from fedaudit.attacks.evaluation.label_rules import llg, present, proportions, select_far_rows
from tests.attacks.world import Net, digits

X, Y = map(torch.from_numpy, digits())


def fresh(seed: int) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net()


def batch(seed: int, size: int) -> torch.Tensor:
    """Rows of the second half, with labels drawn as Dirichlet(0.3)."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(10, 0.3))
    labels = rng.choice(10, size, p=share)
    return torch.tensor([rng.choice(900 + np.flatnonzero(Y[900:] == c)) for c in labels])


def gradient(net: Net, rows: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Of the head's bias and the row sums of its weight, as autograd gives them."""
    grads = torch.autograd.grad(cross_entropy(net(X[rows]), Y[rows]), [net.head.bias, net.head.weight])
    return grads[0].double().numpy(), grads[1].double().numpy().sum(axis=1)


def test_one_image_shows_its_label_exactly() -> None:
    # iDLG: of a single image's gradient only the entry of the label is negative
    for seed in range(50):
        rows = batch(seed, 1)
        for change in gradient(fresh(seed), rows):
            assert present(-change).tolist() == (np.arange(10) == int(Y[rows[0]])).tolist()


def test_counts_of_a_batch_of_fifty_at_fresh_initialisation_are_exact() -> None:
    net, exact = fresh(0), 0
    with torch.no_grad():
        outputs = softmax(net(X[:900]), dim=1).double().numpy()  # the adversary's own images
    means = np.stack([outputs[Y[:900] == c].mean(axis=0) for c in range(10)])
    for seed in range(100):
        rows = batch(seed, 50)
        bias, _ = gradient(net, rows)
        share = proportions(-bias, [means])
        counts = spread(np.array([50]), share)[0]
        exact += (counts == np.bincount(Y[rows], minlength=10)).all()
    assert exact >= 95


def test_llg_counts_most_of_a_batch_from_row_sums() -> None:
    overlap = []
    for seed in range(30):
        rows = batch(seed, 20)
        _, sums = gradient(fresh(seed), rows)
        true, counts = np.bincount(Y[rows], minlength=10), llg(sums, 20)
        assert counts.sum() == 20 and counts.min() >= 0
        overlap.append(np.minimum(true, counts).sum() / 20)
    assert np.mean(overlap) > 0.7  # the rule assumes that all rows weigh the same


def test_llg_by_hand() -> None:
    # m = -4/6 * (1 + 1/3) = -0.89; each negative class once: -2.11, -0.11; then class 0 three times, to
    # 0.56, and class 1; without the 1/3 it would be 5 and 1
    assert llg(np.array([-3.0, -1.0, 1.0]), 6).tolist() == [4, 2, 0]


def test_proportions_solve_the_balance_of_the_bias() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        outputs, q = rng.dirichlet(np.full(6, 5.0), size=6), rng.dirichlet(np.full(6, 0.4))
        found = proportions(q - outputs.T @ q, [outputs])
        np.testing.assert_allclose(found, q, atol=1e-6)


def test_rows_that_stand_still_are_classes_that_the_loss_leaves_out() -> None:
    assert present(np.array([0.2, -0.2, 0.0, 1e-9])).tolist() == [True, True, False, False]
    assert present(np.array([0.2, 0.2, -0.3, -0.1])).tolist() == [True, True, False, False]
    assert present(np.array([0.3, 0.1, -0.3, -0.1]), 1).tolist() == [True, False, False, False]


def test_far_moved_cuts_at_the_widest_ratio() -> None:
    assert select_far_rows(np.array([0.5, 0.02, 0.4, 0.01])).tolist() == [True, False, True, False]
    assert select_far_rows(np.array([0.0, 0.4, 0.5])).tolist() == [False, True, True]
    assert not select_far_rows(np.zeros(3)).any()


@pytest.mark.parametrize("seed", [0, 1])
def test_proportions_are_proportions_whatever_the_bias_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q = proportions(rng.normal(size=5), [rng.dirichlet(np.ones(5), size=5)] * 3)
    assert q.min() >= 0 and q.sum() == pytest.approx(1)


def test_a_bias_that_stood_still_at_models_without_an_opinion_is_explained_by_equal_shares() -> None:
    """A sparse update leaves it out; there is then nothing left to learn, and no division by it."""
    indifferent = np.full((4, 4), 0.25)
    assert proportions(np.zeros(4), [indifferent] * 3).tolist() == pytest.approx([0.25] * 4)
