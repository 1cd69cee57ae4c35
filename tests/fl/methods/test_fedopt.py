"""FedOpt: steps by hand and by torch, FedAvg without momentum, and FedAvg in the limit of the others."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedopt import FedOpt
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, NormalisedNet, close, run, same

ALL = ["adam", "yogi", "adagrad"]


def make(server: str, **settings: Any) -> FedOpt:
    return FedOpt(FedOpt.Config(**(SETTINGS | {"server": server} | settings)))


def walk(server: FedOpt, deltas: list[float]) -> list[float]:
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
    found = walk(make("adam", beta1=0.5, beta2=0.75, kappa=0.5), [2.0, -1.0, -1.0])
    v = 0.75 * (0.75 * 1.1875 + 0.25) + 0.25
    assert found == pytest.approx([1 / (1.1875**0.5 + 0.5), 0.0, -0.5 / (v**0.5 + 0.5)])


def test_yogi_by_hand() -> None:
    """v0 = 0.25. delta 2: v < 4, so v = 0.25 + 0.25 * 4 = 1.25; delta 0.5: v > 0.25, so v = 1.25 - 0.0625."""
    found = walk(make("yogi", beta1=0.0, beta2=0.75, kappa=0.5), [2.0, 0.5])
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
    assert walk(make("adagrad", kappa=0.5), deltas) == pytest.approx(expected)


@pytest.mark.parametrize("server", ALL)
def test_with_a_large_kappa_it_is_fedavg(server: str) -> None:
    """sqrt(v) stays at kappa, so a rate of 2 kappa steps by delta."""
    slow = {} if server == "adagrad" else {"beta2": 1 - 1e-9}
    method = make(server, beta1=0.0, kappa=1e6, server_lr=2e6, **slow)
    assert close(run(method, **WORLD), run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD))


@pytest.mark.parametrize("server", ALL)
def test_with_its_defaults_it_is_not_fedavg(server: str) -> None:
    assert not close(run(make(server), **WORLD), run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD))


@pytest.mark.parametrize("server", ALL)
def test_default_first_steps_are_no_multiple_of_what_clients_moved(server: str) -> None:
    """A change of .01 becomes a step of at most .05: more throws the initial weights away."""
    method = FedOpt(FedOpt.Config(server=server))  # type: ignore[call-arg]
    assert 0.02 < method.rate * walk(method, [0.01])[0] < 0.05


def test_the_three_differ() -> None:
    a, b, c = (run(make(server)) for server in ALL)
    assert not close(a, b) and not close(b, c) and not close(a, c)


@pytest.mark.nightly
@pytest.mark.parametrize("server", ALL)
def test_a_run_that_was_stopped_continues_to_the_same_bits(server: str, tmp_path: Path) -> None:
    assert continues(lambda: make(server), tmp_path, **WORLD)


def test_settings_out_of_range_are_refused() -> None:
    for server, key, value in (
        ("adam", "beta2", 1.0),
        ("adagrad", "beta1", -0.1),
        ("momentum", "beta1", 1.0),
        ("yogi", "kappa", 0.0),
        ("adam", "server_lr", -1.0),
    ):
        with pytest.raises(UserError, match=f"{key} must be"):
            make(server, **{key: value})


def test_normalisation_statistics_are_averaged_not_stepped() -> None:
    """A model with BatchNorm: running statistics follow the mean, whatever the optimiser does."""
    settings = {"rounds": 1, "batch_size": 16}  # 10 would leave a batch of one
    adam = run(make("adam", **settings), make=NormalisedNet)
    avg = run(FedAvg(FedAvg.Config(**(SETTINGS | settings))), make=NormalisedNet)
    assert torch.equal(adam["norm.running_var"], avg["norm.running_var"])
    assert torch.equal(adam["norm.num_batches_tracked"], avg["norm.num_batches_tracked"])
    assert not same(adam, avg)


def momentum(**settings: Any) -> FedOpt:
    return make("momentum", **settings)


def test_no_momentum_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(momentum(beta1=0.0), **WORLD), run(fedavg, **WORLD))


def test_momentum_is_not_fedavg_after_the_first_round() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert not same(run(momentum(), **WORLD), run(fedavg, **WORLD))
    one = {"rounds": 1}
    assert same(run(momentum(**one)), run(FedAvg(FedAvg.Config(**(SETTINGS | one)))))


def test_the_server_is_torch_sgd_with_momentum() -> None:
    server = momentum(server_lr=0.7, beta1=0.9)
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=0.7, momentum=0.9)
    moments = server.moments({"w": torch.zeros(2, dtype=torch.float64)})
    at = w.detach().clone()
    for delta in ([0.5, -0.25], [-1.0, 0.0], [0.1, 3.0]):
        change = torch.tensor(delta, dtype=torch.float64)
        w.grad = -change
        sgd.step()
        step = server.direction({"w": change}, moments)
        at, moments = at + 0.7 * step.direction["w"], step.moments
        torch.testing.assert_close(at, w.detach(), rtol=0, atol=1e-12)


def test_a_server_rate_of_zero_never_moves() -> None:
    world = run(momentum(server_lr=0.0))
    for name, value in world.model.items():
        torch.testing.assert_close(value, world.initial[name], rtol=0, atol=1e-7)


@pytest.mark.nightly
def test_a_run_with_momentum_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(momentum, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(momentum(), script=EVERYONE), run(momentum(), script=EVERYONE, workers=2))
