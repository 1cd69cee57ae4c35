"""Shadow training: the same numbers on any number of cores, and those of plain training."""

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Examples
from fedaudit.audit.observer.shadows import ShadowTrainer
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.fl.runtime.workers import one_thread
from tests.attacks.models.overfit import CONFIG, Mlp, Overfit, overfit

SUBSETS = [np.arange(40), np.arange(40, 90), np.arange(20, 60)]


def logits(cores: int, seed: int = 3, world: Overfit | None = None) -> np.ndarray:
    w = world or overfit()
    train = ShadowTrainer(make=Mlp, data=w.data, config=CONFIG)
    with one_thread(), share_cores(cores):
        return train(w.auxiliary, SUBSETS, w.reference.x[:30], epochs=2, seed=seed)


def test_the_number_of_cores_changes_no_bit() -> None:
    alone = logits(0)
    assert alone.shape == (3, 30, 10)
    assert np.array_equal(alone, logits(2))
    assert np.array_equal(alone, logits(3))


def test_another_seed_and_another_subset_give_other_models() -> None:
    a, b = logits(0), logits(0, seed=4)
    assert not np.allclose(a, b) and not np.allclose(a[0], a[2])


def test_models_of_the_same_examples_from_one_start_see_them_in_orders_of_their_own() -> None:
    w = overfit()
    start = {k: np.asarray(v) for k, v in w.artifacts[0].payload.items()}
    one, other = w.trainer(w.auxiliary, [np.arange(90)] * 2, w.reference.x[:5], epochs=1, seed=0, start=start)
    assert not np.array_equal(one, other)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    logits(0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_one_full_batch_is_one_step_of_torch_sgd_from_the_given_start() -> None:
    w = overfit()
    start = {k: np.asarray(v) for k, v in w.artifacts[0].payload.items()}
    rows = np.arange(CONFIG.batch_size)
    found = w.trainer(w.auxiliary, [rows], w.reference.x[:5], epochs=1, seed=0, start=start)
    net = Mlp()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in start.items()})
    x, queries = ((torch.from_numpy(a) - 0.5) / 0.3 for a in (w.auxiliary.x[rows], w.reference.x[:5]))
    step = torch.optim.SGD(net.parameters(), lr=CONFIG.lr)
    torch.nn.functional.cross_entropy(net(x), torch.from_numpy(w.auxiliary.y[rows])).backward()
    step.step()
    np.testing.assert_allclose(found[0], net(queries).detach().numpy(), atol=1e-5)


def test_images_in_a_subset_are_learnt_and_others_less() -> None:
    w = overfit()
    pool = Examples(x=w.auxiliary.x[:200], y=w.auxiliary.y[:200])
    found = w.trainer(pool, [np.arange(100), np.arange(100, 200)], pool.x, epochs=30, seed=0)
    right = found.argmax(axis=2) == pool.y
    own = [right[0, :100].mean(), right[1, 100:].mean()]
    assert min(own) > max(right[0, 100:].mean(), right[1, :100].mean()) + 0.1


@pytest.mark.parametrize("cores", [0, 2])
def test_what_fails_in_a_copy_is_raised(cores: int) -> None:
    w = overfit()
    train = ShadowTrainer(make=Mlp, data=w.data, config=CONFIG)
    with one_thread(), share_cores(cores), pytest.raises(IndexError):
        train(w.auxiliary, [np.arange(5), np.array([10**6])], w.reference.x[:5], epochs=1, seed=0)
