"""WGAN-GP: the penalty by hand, every shape, both modes, and that training moves towards the data."""

import pytest
import torch
from torch import nn

from fedaudit.fl.families import gan
from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure

SMALL = gan.GanConfig(width=8, latent=8, batch_size=32, lr_generator=2e-3, lr_critic=2e-3, local=1)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_penalty_of_a_linear_critic() -> None:  # T-GA-5
    a = torch.tensor([[3.0, 0, 4, 0]])
    linear = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, bias=False))
    linear[1].weight.data = a
    assert gan.gradient_penalty(linear, torch.randn(7, 1, 2, 2)).item() == pytest.approx(16.0)
    linear[1].weight.data = a / 10
    assert gan.gradient_penalty(linear, torch.randn(7, 1, 2, 2)).item() == pytest.approx(0.25)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 8), (1, 6, 7), (3, 25, 25), (1, 28, 28)])
@pytest.mark.parametrize("classes", [0, 3])
def test_images_of_every_size(shape: tuple[int, ...], classes: int) -> None:
    pair = gan.initial(shape, SMALL, rng(), classes)
    labels = torch.tensor([0, 1, 2, 1, 0]) if classes else None
    x = gan.sample(pair.generator, shape, 5, SMALL, rng(), labels, classes)
    assert x.shape == (5, *shape) and x.min() >= 0 and x.max() <= 1
    y = torch.zeros(5, dtype=torch.int64)
    visit = gan.train(pair, 2 * x - 1, y, SMALL, rng(), classes)
    assert visit.pair.generator.keys() == pair.generator.keys()
    none = torch.zeros(0).long() if classes else None
    assert gan.sample(pair.generator, shape, 0, SMALL, rng(), none, classes).shape == (0, *shape)


def test_a_visit_is_the_same_again_and_leaves_its_input_alone() -> None:
    pair, x, y = (gan.initial((1, 8, 8), SMALL, rng()), torch.rand(70, 1, 8, 8), torch.zeros(70).long())
    before = {k: v.clone() for k, v in pair.generator.items()}
    a, b = (gan.train(pair, x, y, SMALL, rng(1)) for _ in range(2))
    assert all(torch.equal(a.pair.generator[k], b.pair.generator[k]) for k in before)
    assert all(torch.equal(before[k], pair.generator[k]) for k in before)
    assert any(not torch.equal(before[k], a.pair.generator[k]) for k in before)


def test_steps_and_epochs_count_what_they_say() -> None:
    pair, x, y = (gan.initial((1, 8, 8), SMALL, rng()), torch.rand(64, 1, 8, 8), torch.zeros(64).long())
    # one epoch of two batches is one step of the generator, as T_g = 1 is; T_d = 3 leaves it none
    steps = gan.GanConfig(**{**vars(SMALL), "unit": "step", "local": 1})
    assert gan.train(pair, x, y, steps, rng()).generator_loss != 0
    few = gan.GanConfig(**{**vars(SMALL), "critic_steps": 3})
    trained = gan.train(pair, x, y, few, rng()).pair
    assert all(torch.equal(trained.generator[k], pair.generator[k]) for k in pair.generator)
    assert any(not torch.equal(trained.critic[k], pair.critic[k]) for k in pair.critic)


@pytest.mark.nightly
def test_training_moves_the_images_towards_the_data() -> None:
    x = torch.full((64, 1, 8, 8), -0.8)
    x[:, :, :, 4:] = 0.8
    pair = gan.initial((1, 8, 8), SMALL, rng())

    def gap(p: gan.GanPair) -> float:
        made = gan.sample(p.generator, (1, 8, 8), 200, SMALL, rng(5)).mean(0)
        return float((made - (x[0] + 1) / 2).abs().mean())

    first, visits = gap(pair), rng(2)
    for _ in range(60):
        pair = gan.train(pair, x, torch.zeros(64).long(), SMALL, visits).pair
    assert gap(pair) < first / 3


@pytest.mark.nightly
def test_conditional_generators_make_the_class_asked_for() -> None:
    y = torch.arange(64) % 2
    x = (y * 1.6 - 0.8)[:, None, None, None].expand(64, 1, 8, 8).contiguous()
    pair, visits = gan.initial((1, 8, 8), SMALL, rng(), 2), rng(2)
    for _ in range(80):
        pair = gan.train(pair, x, y, SMALL, visits, 2).pair
    made = gan.sample(pair.generator, (1, 8, 8), 100, SMALL, rng(5), torch.arange(100) % 2, 2)
    bright = made.mean((1, 2, 3))
    assert bright[1::2].mean() - bright[::2].mean() > 0.4


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(UserError, match="at least 4 x 4 pixels"):
        gan.initial((80,), SMALL, rng())
    with pytest.raises(UserError, match=r"gan\.critic_steps must be >= 1, got 0"):
        configure(Gandalf, {"gan": {"critic_steps": 0}}, "method")
