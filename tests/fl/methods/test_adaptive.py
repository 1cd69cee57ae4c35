"""FedAdam, FedYogi and FedAdagrad: steps by hand and by torch, and FedAvg in the limit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.fed_opt import AdaptiveOptimiser, FedAdagrad, FedAdam, FedYogi
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import NormalisedNet, close, run, same

ALL = [FedAdam, FedYogi, FedAdagrad]


def make(cls: type[AdaptiveOptimiser], **settings: Any) -> AdaptiveOptimiser:
    return cls(cls.Config(**(SETTINGS | settings)))


def walk(server: AdaptiveOptimiser, deltas: list[float]) -> list[float]:
    """The directions of successive mean changes of one weight."""
    moments = server.moments({"w": torch.zeros(1, dtype=torch.float64)})
    found = []
    for delta in deltas:
        step = server.direction({"w": torch.tensor([delta], dtype=torch.float64)}, moments)
        moments = step.moments
        found.append(float(step.direction["w"]))
    return found


def test_adam_by_hand() -> None:
    """beta1 0.5, beta2 0.75, kappa 0.5: v0 = 0.25.

    delta 2: m = 1, v = 0.75 * 0.25 + 0.25 * 4 = 1.1875; delta -1: m = 0, v = 0.75 v + 0.25.
    """
    found = walk(make(FedAdam, beta1=0.5, beta2=0.75, kappa=0.5), [2.0, -1.0, -1.0])
    v = 0.75 * (0.75 * 1.1875 + 0.25) + 0.25
    assert found == pytest.approx([1 / (1.1875**0.5 + 0.5), 0.0, -0.5 / (v**0.5 + 0.5)])


def test_yogi_by_hand() -> None:
    """v0 = 0.25. delta 2: v < 4, so v = 0.25 + 0.25 * 4 = 1.25; delta 0.5: v > 0.25, so v = 1.25 - 0.0625."""
    found = walk(make(FedYogi, beta1=0.0, beta2=0.75, kappa=0.5), [2.0, 0.5])
    assert found == pytest.approx([2 / (1.25**0.5 + 0.5), 0.5 / (1.1875**0.5 + 0.5)])


def test_adagrad_is_torch_adagrad() -> None:
    w = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    torchs = torch.optim.Adagrad([w], lr=1.0, initial_accumulator_value=0.25, eps=0.5)
    deltas, before, expected = [2.0, -1.0, 0.5], 0.0, []
    for delta in deltas:
        w.grad = torch.tensor([-delta], dtype=torch.float64)
        torchs.step()
        expected.append(float(w.detach()) - before)
        before = float(w.detach())
    assert walk(make(FedAdagrad, kappa=0.5), deltas) == pytest.approx(expected)


@pytest.mark.parametrize("cls", ALL)
def test_with_a_large_kappa_it_is_fedavg(cls: type[AdaptiveOptimiser]) -> None:
    """sqrt(v) stays at kappa, so a rate of 2 kappa steps by delta."""
    slow = {} if cls is FedAdagrad else {"beta2": 1 - 1e-9}
    server = make(cls, beta1=0.0, kappa=1e6, server_lr=2e6, **slow)
    assert close(run(server, **WORLD), run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD))


@pytest.mark.parametrize("cls", ALL)
def test_with_its_defaults_it_is_not_fedavg(cls: type[AdaptiveOptimiser]) -> None:
    assert not close(run(make(cls), **WORLD), run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD))


@pytest.mark.parametrize("cls", ALL)
def test_default_first_steps_are_no_multiple_of_what_clients_moved(cls: type[AdaptiveOptimiser]) -> None:
    """A change of .01 becomes a step of at most .05: more throws the initial weights away."""
    server = cls(cls.Config())
    assert 0.02 < server.config.server_lr * walk(server, [0.01])[0] < 0.05


def test_the_three_differ() -> None:
    a, b, c = (run(make(cls)) for cls in ALL)
    assert not close(a, b) and not close(b, c) and not close(a, c)


@pytest.mark.nightly
@pytest.mark.parametrize("cls", ALL)
def test_a_run_that_was_stopped_continues_to_the_same_bits(cls: type[AdaptiveOptimiser], tmp_path: Path) -> None:
    assert continues(lambda: make(cls), tmp_path, **WORLD)


def test_settings_out_of_range_are_refused() -> None:
    for cls, key, value in (
        (FedAdam, "beta2", 1.0),
        (FedAdagrad, "beta1", -0.1),
        (FedYogi, "kappa", 0.0),
        (FedAdam, "server_lr", -1.0),
    ):
        with pytest.raises(UserError, match=f"{key} must be"):
            make(cls, **{key: value})


def test_normalisation_statistics_are_averaged_not_stepped() -> None:
    """A model with BatchNorm: running statistics follow the mean, whatever the optimiser does."""
    settings = {"rounds": 1, "batch_size": 16}  # 10 would leave a batch of one
    adam = run(make(FedAdam, **settings), make=NormalisedNet)
    avg = run(FedAvg(FedAvg.Config(**(SETTINGS | settings))), make=NormalisedNet)
    assert torch.equal(adam["norm.running_var"], avg["norm.running_var"])
    assert torch.equal(adam["norm.num_batches_tracked"], avg["norm.num_batches_tracked"])
    assert not same(adam, avg)
