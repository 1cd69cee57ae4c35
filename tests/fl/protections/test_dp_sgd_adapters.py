"""DP-SGD through adapters and embeddings: every trained number is clipped, example by example, and noised."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedaudit.fl.families.adapters import attach
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.models.tiny_gpt import TinyGPT
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.private import PrivateTraining, RecordDraws, Trainee, train

VOCABULARY, LENGTH, CLIP = 30, 6, 0.01


def gpt(task: str = "classify", rank: int = 2) -> Net:
    def make() -> Net:
        config = TinyGPT.Config(dim=8, heads=2, layers=1, vocabulary=VOCABULARY, task=task)  # type: ignore[arg-type]
        return TinyGPT((LENGTH,), 3, config)

    net = initialise(make, Streams(3))
    if not rank:
        return net
    net = attach(net, rank, 4.0, ["q", "v"], [] if task == "lm" else ["head"])
    for name, p in net.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.5, generator=torch.Generator().manual_seed(2))
    return net


def texts(n: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    return torch.randint(1, VOCABULARY, (n, LENGTH), generator=draws), torch.randint(0, 3, (n,), generator=draws)


def step(net: Net, x: Tensor, y: Tensor, noise: float = 0.0, clip: float = CLIP) -> dict[str, Tensor]:
    """What one step on all these examples adds to each trained array, at rate 1 and an expected batch of one."""
    private = PrivateTraining(clip_norm=clip, noise_multiplier=noise, sample_rate=1.0, steps=1)
    start, line = state_of(net), private.line(0, "client/0", "", ())
    draws = RecordDraws(Streams(4).coins("batches"), torch.arange(len(y)))
    method: Any = FedAvg(FedAvg.Config(lr=1.0, batch_size=1))
    source = NoiseSource(Streams(4).noise("batches"))
    trainee = Trainee(start=start, x=x, y=y, const={}, draws=draws, noise=source, line=line)
    end = train(method, private, net, [trainee])[0].state
    return {k: end[k] - start[k] for k in start}


def clip_by_hand(net: Net, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Minus the sum of each example's own gradient, over all its trained arrays together no longer than CLIP."""
    total: dict[str, Tensor] = {}
    for i in range(len(y)):
        net.zero_grad()
        net.loss(x[i : i + 1], y[i : i + 1]).backward()  # type: ignore[no-untyped-call]
        grads = {k: p.grad for k, p in net.named_parameters() if p.grad is not None}
        length = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        for name, g in grads.items():
            total[name] = total.get(name, torch.zeros_like(g)) - g * min(1.0, CLIP / length)
    return total


@pytest.mark.parametrize("task", ["classify", "lm"])
def test_every_array_of_the_adapters_is_clipped_with_all_others_example_by_example(task: str) -> None:
    """Opacus's issue 820: parameters whose gradients were never clipped, under an epsilon that looked right."""
    x, y = texts(5)
    ours, hand = step(gpt(task), x, y), clip_by_hand(gpt(task), x, y)
    assert set(ours) == set(hand) and all(float(v.abs().max()) > 0 for v in ours.values())
    assert all(torch.allclose(ours[k], hand[k], atol=1e-4 * CLIP) for k in ours)


def test_one_text_more_moves_all_that_is_sent_by_the_clip_at_most() -> None:
    x, y = texts(5)
    with_it, without = step(gpt(), x, y), step(gpt(), x[:-1], y[:-1])
    gap = math.sqrt(sum(float((with_it[k] - without[k]).square().sum()) for k in with_it))
    assert gap == pytest.approx(CLIP, rel=1e-3)


def test_an_array_that_is_not_clipped_is_found_by_the_same_test() -> None:
    x, y = texts(5)
    hand = clip_by_hand(gpt(), x, y)
    name = next(iter(hand))
    net = gpt()
    net.loss(x, y).backward()  # type: ignore[no-untyped-call]
    unclipped = dict(net.named_parameters())[name].grad
    assert unclipped is not None
    assert not torch.allclose(step(gpt(), x, y)[name], -5 * unclipped, atol=1e-5)


class Embedded(Net):
    """Loss: the sum over positions of <c_t, e(x_t)>, so that c_t is the gradient at position t."""

    def __init__(self) -> None:
        super().__init__((3,), 2)
        self.embed = nn.Embedding(4, 2)
        self.head = nn.Linear(2, 2)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        coefficients = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
        return (self.embed(x) * coefficients).sum()


def test_a_token_that_stands_twice_counts_once_with_the_sum_of_its_gradients() -> None:
    """Tokens a b a with gradients (1, 0), (0, 2), (1, 1): the example's norm is 3, and not the root of 7."""
    x, y = torch.tensor([[1, 2, 1]]), torch.tensor([0])
    free = step(Embedded(), x, y, clip=100.0)["embed.weight"]
    assert float(free.norm()) == pytest.approx(3.0)
    clipped = step(Embedded(), x, y, clip=1.5)["embed.weight"]
    assert torch.allclose(clipped, free / 2, atol=1e-6)


def test_noise_goes_on_all_rows_of_an_embedding_whether_a_token_was_read_or_not() -> None:
    x, y = texts(2)
    moved = step(gpt(rank=0), x, y, noise=1.0)["embed.weight"]
    assert bool((moved != 0).all())
    quiet = step(gpt(rank=0), x, y)["embed.weight"]
    read = torch.unique(x)
    assert set(torch.nonzero(quiet.abs().sum(1))[:, 0].tolist()) <= set(read.tolist())
