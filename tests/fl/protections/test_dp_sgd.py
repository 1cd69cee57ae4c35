"""DP-SGD: without clip and noise it is SGD, with them it is Opacus's, and the ledger says what it is."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.clients.client import Client
from fedaudit.fl.ledger import read
from fedaudit.fl.methods.class_softmax import FedLC
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedprox import FedProx
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.protections.dp_sgd import DPSGD
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.local import Trained
from fedaudit.fl.training.local import train as train_plainly
from fedaudit.fl.training.private import PrivateTraining, RecordDraws, Trainee, train
from tests.fl.worlds import CLASSES, TinyNet, data, parts, run, same

N, LR = 20, 0.1
HUGE = 1e6


def examples(n: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, 1, 6, 6, generator=generator)
    return x, torch.randint(0, CLASSES, (n,), generator=generator)


def net() -> Net:
    return initialise(TinyNet, Streams(3))


def method(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(lr=LR, batch_size=N, **settings))


def privately(n: int = N, seed: int = 4, how: FedAvg | None = None, **settings: Any) -> tuple[State, State]:
    """The start, and the state after private training."""
    usual = {"clip_norm": HUGE, "noise_multiplier": 0.0, "sample_rate": 1.0, "steps": 3}
    model, (x, y) = net(), examples(n)
    start = state_of(model)
    return start, trained(PrivateTraining(**(usual | settings)), model, x, y, seed, how or method()).state


def trained(
    private: PrivateTraining,
    model: Net,
    x: Tensor,
    y: Tensor,
    seed: int = 4,
    how: FedAvg | None = None,
    **more: Any,
) -> Trained:
    """One local training on records 0, 1, ..., or on `records`."""
    draws = RecordDraws(Streams(seed).coins("batches"), more.pop("records", torch.arange(len(y))))
    noise, line = NoiseSource(Streams(seed).noise("batches")), private.line(0, "client/0", "", ())
    trainee = Trainee(start=state_of(model), x=x, y=y, const={}, draws=draws, noise=noise, line=line, **more)
    return train(how or method(), private, model, [trainee])[0]


def moved(start: State, end: State) -> Tensor:
    return torch.cat([(end[k] - start[k]).flatten() for k in start])


def test_without_clip_and_noise_and_with_every_example_it_is_gradient_descent() -> None:
    start, ours = privately(steps=3)
    x, y = examples()
    plain = train_plainly(method(local_epochs=3), net(), start, x, y, {}, torch.Generator())
    assert all(torch.allclose(ours[k], plain.state[k], atol=1e-6) for k in ours)


def test_a_penalty_on_the_weights_is_in_every_examples_gradient() -> None:
    prox = FedProx(FedProx.Config(lr=LR, batch_size=N, mu=2.0, local_epochs=3))
    start, ours = privately(steps=3, how=prox)
    x, y = examples()
    plain = train_plainly(prox, net(), start, x, y, {}, torch.Generator())
    assert all(torch.allclose(ours[k], plain.state[k], atol=1e-6) for k in ours)


def test_one_example_moves_the_model_by_the_clip_and_no_more() -> None:
    start, end = privately(n=1, clip_norm=0.01, steps=1)
    assert float(moved(start, end).norm()) == pytest.approx(LR * 0.01 / N, rel=1e-3)
    start, free = privately(n=1, steps=1)
    assert float(moved(start, free).norm()) > 2 * LR * 0.01 / N


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_an_example_whose_gradient_is_not_finite_moves_the_model_by_the_clip_at_most(bad: float) -> None:
    x, y = examples()
    x[3] = bad
    private = PrivateTraining(clip_norm=0.01, noise_multiplier=0.0, sample_rate=1.0, steps=1)
    others, one_more = (
        trained(private, net(), x[keep], y[keep], records=torch.arange(N)[keep]).state
        for keep in ([k for k in range(N) if k != 3], list(range(N)))
    )
    assert all(bool(v.isfinite().all()) for v in one_more.values())
    assert float(moved(others, one_more).norm()) <= LR * 0.01 / N * 1.001


def test_a_step_is_that_of_opacus_on_the_same_examples() -> None:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    start, ours = privately(clip_norm=0.05, noise_multiplier=1.5, steps=1)
    noise = Streams(4).noise("batches")
    torch_net = net()
    module = GradSampleModule(_Plain(torch_net))
    optimiser = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=0.0,
        max_grad_norm=0.05,
        expected_batch_size=N,
    )
    x, y = examples()
    cross_entropy(module(x), y).backward()
    optimiser.step()
    with torch.no_grad():  # its step without noise, and the cipher's noise on top
        for p in torch_net.parameters():
            p -= LR / N * 1.5 * 0.05 * noise.draw_gaussian(p.numel()).reshape(p.shape)
    theirs = state_of(torch_net)
    assert all(torch.allclose(ours[k], theirs[k], atol=1e-6) for k in ours)
    assert not all(torch.equal(ours[k], start[k]) for k in ours)


class _Plain(nn.Module):
    def __init__(self, inner: Net) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def test_the_noise_has_the_deviation_that_the_ledger_states(tmp_path: Path) -> None:
    start, end = privately(clip_norm=1e-6, noise_multiplier=3e6, steps=1)  # nothing but noise
    expected = LR * 3.0 / N
    noise = moved(start, end)
    assert float(noise.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(noise)))
    protection = DPSGD(DPSGD.Config(clip_norm=1e-6, noise_multiplier=3e6, steps=1, sample_rate=1.0))
    run(FedAvg(FedAvg.Config(rounds=2, weighting="uniform")), folder=tmp_path, protections=[protection])
    releases = read(tmp_path / "ledger.jsonl")
    assert {r.kind for r in releases} == {"local_model"}
    assert {(r.noise_std, r.noise_multiplier, r.unit, r.count) for r in releases} == {(3.0, 3e6, "record", 1)}


def test_a_batch_may_be_empty_and_a_client_may_have_no_example() -> None:
    start, end = privately(sample_rate=1e-9, noise_multiplier=0.0)
    assert torch.equal(moved(start, end), torch.zeros_like(moved(start, end)))
    start, end = privately(n=0, clip_norm=1.0, noise_multiplier=1.0)
    assert torch.isfinite(moved(start, end)).all() and moved(start, end).norm() > 0


def test_how_often_an_example_is_used_is_the_sample_rate() -> None:
    """Copies of one example each move the model alike, so the way it goes counts them."""
    x, y = examples(1)
    many, target, start = x.repeat(N, 1, 1, 1), y.repeat(N), state_of(net())
    clip, used = 1e-4, []
    for seed in range(60):
        private = PrivateTraining(clip_norm=clip, noise_multiplier=0.0, sample_rate=0.3, steps=1)
        end = trained(private, net(), many, target, seed).state
        used.append(round(float(moved(start, end).norm()) / (LR * clip / N)))
    deviation = math.sqrt(60 * N * 0.3 * 0.7)
    assert abs(sum(used) - 60 * N * 0.3) < 4 * deviation
    assert len(set(used)) > 5  # every example is drawn on its own, not a batch of fixed size


def test_workers_and_this_process_give_the_same_numbers() -> None:
    protection = DPSGD(DPSGD.Config(steps=2, sample_rate=0.5))
    fedavg = FedAvg(FedAvg.Config(rounds=2))
    here = run(fedavg, protections=[protection])
    assert same(here, run(fedavg, protections=[protection], workers=2))
    assert not same(here, run(fedavg))


def world(method: str, protections: list[Any]) -> SimulatedCase:
    federation = {"dataset": "digits", "clients": 3, "model": "small_cnn"}
    return SimulatedCase(SimulatedConfig(federation=federation, method=method, protections=protections))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rebafl", "bsm_fedavg", "scaffold", "fedlc", "fedrs"])
def test_methods_that_use_their_data_outside_of_training_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="does not bound"):
        _ = world(name, ["dp_sgd"]).private


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedopt"])
def test_methods_that_average_trained_models_are_bounded(name: str) -> None:
    private = world(name, ["dp_sgd"]).private
    assert private is not None and private.noise_multiplier == 1.0
    assert world(name, []).private is None


def test_batch_normalisation_and_two_trainings_are_refused() -> None:
    class Normed(TinyNet):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.norm = nn.BatchNorm1d(3)

    x, y = examples()
    private = DPSGD(DPSGD.Config()).training()
    with pytest.raises(UserError, match="batch normalisation"):
        trained(private, Normed(), x, y)
    with pytest.raises(UserError, match="two of them"):
        _ = world("fedavg", ["dp_sgd", "dp_sgd"]).private
    with pytest.raises(UserError, match="grad_clip"):
        privately(how=method(grad_clip=1.0))


# One record less -----------------------------------------------------------------------------


def test_one_record_less_leaves_the_noise_and_all_others_draws_as_they_are() -> None:
    private = PrivateTraining(clip_norm=1e-3, noise_multiplier=1000.0, sample_rate=0.5, steps=4)
    x, y = examples()
    start, rest = state_of(net()), torch.arange(N) != 7
    whole = moved(start, trained(private, net(), x, y).state)
    fewer = moved(start, trained(private, net(), x[rest], y[rest], records=torch.arange(N)[rest]).state)
    assert float((whole - fewer).norm()) < 0.01 * float(whole.norm())  # nearly all of it is noise
    other = moved(start, trained(private, net(), x, y, seed=5).state)
    assert float((whole - other).norm()) > float(whole.norm())


def test_coins_and_crops_belong_to_records_and_not_to_places() -> None:
    source, records = Streams(1).coins("batches"), torch.tensor([30, 4, 17, -1, 4, 9])
    all_of_them = RecordDraws(source, records).draw(3)
    for left_out in (0, 2, 3, 5):
        kept = torch.arange(6) != left_out
        fewer = RecordDraws(source, records[kept]).draw(3)
        assert torch.equal(fewer.coins, all_of_them.coins[kept]) and torch.equal(
            fewer.rest, all_of_them.rest[kept]
        )
    assert len(all_of_them.coins.unique()) == 6  # two copies of record 4 are two examples
    turned = RecordDraws(source, records.flip(0)[1:4]).draw(3)
    assert sorted(turned.coins.tolist()) == sorted(
        RecordDraws(source, torch.tensor([4, -1, 17])).draw(3).coins.tolist()
    )


def test_coins_are_fair_and_differ_by_step_and_client() -> None:
    records, streams = torch.arange(20_000), Streams(2)
    first = RecordDraws(streams.coins("batches", 0, 1), records)
    a, b = first.draw(0), first.draw(1)
    c = RecordDraws(streams.coins("batches", 0, 2), records).draw(0)
    used = [(d.coins < 0.3).double() for d in (a, b, c)]
    assert all(abs(float(u.mean()) - 0.3) < 5 * math.sqrt(0.21 / 20_000) for u in used)
    both = torch.corrcoef(torch.stack(used)) - torch.eye(3)
    assert float(both.abs().max()) < 5 / math.sqrt(20_000)
    assert abs(float(torch.corrcoef(torch.stack([a.coins, a.rest.double()]))[0, 1])) < 5 / math.sqrt(20_000)


def test_a_crop_is_the_record_s_own() -> None:
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    drawn = RecordDraws(Streams(1).coins("batches"), torch.arange(6)).draw(0)
    together = drawn.crop(x, torch.arange(6))
    for i in range(6):
        assert torch.equal(drawn.crop(x[i : i + 1], torch.tensor([i]))[0], together[i])
    assert not torch.equal(together, x)
    one = torch.ones(4000, 1, 1, 1)
    many = RecordDraws(Streams(1).coins("batches"), torch.arange(4000)).draw(0)
    assert float(many.crop(one, torch.arange(4000)).mean()) == pytest.approx(
        1 / 81, rel=0.5
    )  # one place in 9 x 9


def test_a_run_without_one_record_has_the_same_draws() -> None:
    protection = DPSGD(DPSGD.Config(clip_norm=1e-4, noise_multiplier=1e4, steps=2, sample_rate=0.5))
    d = data()
    index = parts(d)
    fewer = [np.delete(p, 3) if k == 1 else p for k, p in enumerate(index)]
    one, two = (
        run(FedAvg(FedAvg.Config(rounds=1, weighting="uniform")), d=d, index=i, protections=[protection])
        for i in (index, fewer)
    )
    change = torch.cat([(one[k] - one.initial[k]).flatten() for k in one.model])
    gap = torch.cat([(one[k] - two[k]).flatten() for k in one.model])
    assert float(gap.norm()) < 0.01 * float(change.norm())


def test_examples_that_a_method_chose_without_saying_which_are_refused() -> None:
    class Halves(FedAvg):
        def receive(self, client: Client) -> Client:
            return dataclasses.replace(client, x=client.x[::2], y=client.y[::2])

    class Takes(FedAvg):
        def receive(self, client: Client) -> Client:
            return client.take(torch.arange(0, len(client.y), 2)).join(client.x[:1], client.y[:1])

    protection, config = DPSGD(DPSGD.Config(steps=1)), FedAvg.Config(rounds=1)
    with pytest.raises(UserError, match="are its own"):
        run(Halves(config), protections=[protection])
    run(Takes(config), protections=[protection])


@pytest.mark.parametrize("how", [FedAvg, FedProx, FedLC, Scaffold])
def test_stacked_clients_get_what_they_get_one_by_one(how: type[Any]) -> None:
    """Of unequal size, one without an example; batches of a few, which leave some steps without any."""
    protection = DPSGD(DPSGD.Config(clip_norm=0.5, noise_multiplier=0.7, sample_rate=0.2, steps=4))
    alone, together = (
        run(
            how(how.Config(rounds=2, lr=LR, batch_size=4)),
            d=data(n=100),
            index=parts(data(n=80), sizes=(7, 20, 11, 0, 15), skew=False),
            protections=[protection],
            workers=workers,
        )
        for workers in (0, "batched")
    )
    assert all(torch.allclose(alone.model[k], v, atol=1e-5) for k, v in together.model.items())


def test_stacked_clients_take_one_call_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    derive = torch.func.grad_and_value
    monkeypatch.setattr(torch.func, "grad_and_value", lambda loss: calls.append(1) or derive(loss))
    protection = DPSGD(DPSGD.Config(clip_norm=0.5, noise_multiplier=0.7, sample_rate=0.9, steps=4))
    run(method(rounds=1), protections=[protection], workers="batched")
    assert len(calls) == 4
