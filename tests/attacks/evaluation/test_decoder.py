"""Fitting stops where held-out examples no longer gain, and never takes longer than the settings allow."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.attacks.evaluation.decoder import (
    FALL,
    GAIN,
    HELD_OUT,
    LOOK,
    PATIENCE,
    WARM,
    DecoderTraining,
    FallingRate,
    Fit,
    Lesson,
    Rows,
    StackedAdam,
    build,
    fit,
    hold_out,
)
from fedaudit.fl.training.layout import channels_last

LONG = DecoderTraining(epochs=1000, least_steps=0, batch=20, lr=0.01)


def look_at(losses: list[float], most: int = 10_000) -> FallingRate:
    schedule = FallingRate(most)
    for i, loss in enumerate(losses, start=1):
        schedule.look(LOOK * i, loss)
    return schedule


def test_the_rate_falls_once_a_number_of_looks_gain_too_little() -> None:
    little = 1 - GAIN / 2
    schedule = look_at([2.0, 1.0, little, *[little] * (PATIENCE - 1)])
    steps = LOOK * (2 + PATIENCE)
    assert schedule.last == steps + np.ceil(FALL * steps)
    rates = [schedule.scale_rate(step) for step in range(steps + 1, schedule.last + 1)]
    assert schedule.scale_rate(steps) == 1 and rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.02


def test_looks_that_gain_enough_go_on_to_the_most_steps_and_the_rate_falls_at_their_end() -> None:
    schedule = look_at([(1 - 2 * GAIN) ** i for i in range(30)], most=2000)
    assert schedule.last == 2000
    assert schedule.scale_rate(1600) == 1 > schedule.scale_rate(1700) > schedule.scale_rate(2000) > 0


def test_a_later_gain_does_not_raise_a_rate_that_falls() -> None:
    losses = [1.0] * (1 + PATIENCE)
    assert look_at([*losses, 0.1, 0.01]).last == look_at(losses).last


def test_the_rate_rises_over_the_first_steps_and_is_none_after_the_last() -> None:
    schedule = FallingRate(1000)
    assert [schedule.scale_rate(step) for step in (1, WARM // 2, WARM)] == [1 / WARM, 0.5, 1]
    assert [schedule.scale_rate(step) for step in (1001, 1100)] == [0, 0]


def line(examples: int = 200) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    x = torch.randn(examples, 3, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Linear(3, 1)
    return module, x, x @ torch.tensor([[1.0], [2.0], [3.0]])


def count_steps(targets: float, training: DecoderTraining = LONG) -> tuple[int, nn.Module]:
    """Of a linear model of examples whose targets are noise but for this part; and what it became."""
    module, x, y = line()
    y = targets * y + torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    steps = 0

    def loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += torch.is_grad_enabled()
        return ((net(x) - y) ** 2).mean()

    lesson = Lesson(targets=y, rows=hold_out(len(x), torch.Generator().manual_seed(2)), loss=loss)
    fit([Fit(networks=module, inputs=x, generator=torch.Generator())], lesson, training)
    return steps, module


def test_it_stops_early_where_there_is_nothing_to_learn_and_later_where_there_is() -> None:
    nothing, something = count_steps(0.0)[0], count_steps(1.0)[0]
    assert LOOK * (1 + PATIENCE) < nothing < something < 1000 * 9 / 2


@pytest.mark.parametrize(("epochs", "least", "most"), [(3, 0, 27), (1, 70, 70), (2, 5, 18)])
def test_the_settings_are_limits(epochs: int, least: int, most: int) -> None:
    assert count_steps(1.0, DecoderTraining(epochs=epochs, least_steps=least, batch=20, lr=0.01))[0] == most


def test_the_weights_of_the_best_look_are_kept() -> None:
    """A rate so high that the held-out loss rises: what is left is no worse than the beginning's first look."""
    module, x, y = line()
    rows, seen = hold_out(len(x), torch.Generator().manual_seed(2)), list[tuple[float, dict]]()

    def loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        error = ((net(x) - y) ** 2).mean()
        if not torch.is_grad_enabled():
            seen.append((float(error), copy.deepcopy(net.state_dict())))
        return error

    training = DecoderTraining(epochs=100, least_steps=0, batch=20, lr=3.0)
    lesson = Lesson(targets=y, rows=rows, loss=loss)
    fit([Fit(networks=module, inputs=x, generator=torch.Generator())], lesson, training)
    assert len({error for error, _ in seen}) > 3
    best = min(seen, key=lambda pair: pair[0])[1]
    assert all(torch.equal(v, best[k]) for k, v in module.state_dict().items())


def test_each_row_of_a_stack_moves_as_torchs_adam_moves_it_at_its_own_rate() -> None:
    """A row whose rate is 0 stays, and later moves on from what it remembers."""
    start = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    slopes = torch.randn(20, 3, 4, 2, generator=torch.Generator().manual_seed(1))
    scales = [[1.0, 0.5 + step / 40, 0.0 if 5 <= step < 15 else 1.0] for step in range(20)]
    stack = start.clone().requires_grad_()
    stacked, alone = StackedAdam([stack], 0.1), [row.clone().requires_grad_() for row in start]
    adams = [torch.optim.Adam([row]) for row in alone]
    for slope, parts in zip(slopes, scales, strict=True):
        stack.grad = slope.clone()
        stacked.take_step(parts)
        for row, adam, own, part in zip(alone, adams, slope, parts, strict=True):
            row.grad, adam.param_groups[0]["lr"] = own.clone(), 0.1 * part
            adam.step()
        torch.testing.assert_close(stack, torch.stack(alone), rtol=0, atol=1e-6)
    assert (stack - start).abs().min() > 1e-3


def test_a_tenth_is_held_out_and_no_more_than_enough() -> None:
    for examples, held in ((9, 0), (200, 20), (50 * HELD_OUT, HELD_OUT)):
        rows = hold_out(examples, torch.Generator().manual_seed(0))
        assert isinstance(rows, Rows) and len(rows.held_out) == held
        assert sorted(torch.cat([*rows]).tolist()) == list(range(examples))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 25, 25)])
def test_a_decoder_in_channels_last_makes_the_same_images_and_gradients(shape: tuple[int, int, int]) -> None:
    ordinary = build(5, shape, 64, torch.Generator().manual_seed(0))
    last = channels_last(copy.deepcopy(ordinary))
    strides = [m.weight.stride()[1] for m in last.modules() if isinstance(m, nn.ConvTranspose2d)]
    assert strides == [1, 1]
    features, found = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)), []
    for net in (ordinary, last):
        images = net(features)
        torch.autograd.backward(images.square().sum())
        found.append([images.detach(), *(p.grad for p in net.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
