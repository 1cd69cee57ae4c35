"""FedAsync and FedBuff: sequential training and FedAvg as special cases, the clock by hand, checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedasync import FedAsync, FedBuff
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, as_delivered, close, run, same

ONE_BY_ONE = [([k], [k]) for k in (4, 0, 1, 4, 2)]


def fedasync(**settings: Any) -> FedAsync:
    return FedAsync(FedAsync.Config(**(SETTINGS | settings)))


def fedbuff(**settings: Any) -> FedBuff:
    return FedBuff(FedBuff.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | {"weighting": "uniform"} | settings)))


def answer(k: int, w: float, version: int) -> Delivery:
    return Delivery(
        client=k,
        examples=1,
        message={Kind.LOCAL_MODEL: {"w": torch.tensor([w])}, Kind.STALENESS: {"version": torch.tensor(version)}},
    )


def log_of(world: Any) -> list[tuple[int, int, int]]:
    """(round, client, version) of every answer."""
    return [
        (a.round, a.sender.index, int(a.payload["version"]))
        for a in world.artifacts
        if a.kind == Kind.STALENESS and a.channel == Channel.UPLINK
    ]


class Paced(FedAsync):
    """Client 0 needs 1 unit of time, client 1 needs 3.5."""

    def duration(self, federation: Any, client: int, round: int) -> float:
        return {0: 1.0, 1: 3.5}[client]


def test_one_client_at_a_time_with_alpha_one_is_sequential_training_to_the_last_bit() -> None:
    sequential = fedasync(rounds=5, alpha=1.0, rho=0.0, concurrency=1)
    assert same(run(sequential, script=ONE_BY_ONE), run(fedavg(rounds=5), script=ONE_BY_ONE))


def test_alpha_or_rho_make_it_something_else() -> None:
    plain = run(fedavg(rounds=5), script=ONE_BY_ONE)
    for other in ({"alpha": 0.6, "rho": 0.0}, {"alpha": 1.0, "rho": 0.1}):
        world = run(fedasync(rounds=5, concurrency=1, **other), script=ONE_BY_ONE)
        assert not close(world, plain)


def test_a_synchronous_buffer_is_uniform_fedavg_to_the_last_bit() -> None:
    """With an empty round and lost replies: the buffer then closes with those that answered."""
    assert same(run(fedbuff(buffer=4), **WORLD), run(fedavg(), **WORLD))


def test_a_small_buffer_is_not_fedavg() -> None:
    assert not close(run(fedbuff(buffer=2), **WORLD), run(fedavg(), **WORLD))


def test_answers_arrive_by_the_clock_with_their_age(tmp_path: Path) -> None:
    """0 answers at 1, 2, 3; then 1 at 3.5, three steps old; then 0 at 4, started one step ago."""
    method = Paced(fedasync(rounds=6, concurrency=2).config)
    world = run(method, folder=tmp_path, script=[([0, 1], [0, 1])])
    assert log_of(world) == [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 0, 3), (5, 0, 5)]
    assert [r["staleness"] for r in world.history] == [0, 0, 0, 3, 1, 0]
    assert [r["clock"] for r in world.history] == [1.0, 2.0, 3.0, 3.5, 4.0, 5.0]


def test_a_client_trains_the_version_it_was_given(tmp_path: Path) -> None:
    """With alpha 1 the slow client's answer replaces the model: it is FedAvg's first round for client 1."""
    method = Paced(fedasync(rounds=4, concurrency=2, alpha=1.0, rho=0.0, decay="constant").config)
    slow = run(method, script=[([0, 1], [0, 1])])
    assert same(slow, run(fedavg(rounds=1), script=[([1], [1])]))


def test_the_pull_is_rho_times_the_gap() -> None:
    start, params = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([4.0, -3.0])}
    found = fedasync(rho=0.5).correct({"w": torch.tensor([10.0, 10.0])}, params, start, {})
    assert found["w"].tolist() == [11.5, 9.5]


def test_the_mixing_by_hand() -> None:
    """alpha 0.6; two steps old, polynomial: S = 3^-1/2."""
    state = {"model": {"w": torch.tensor([1.0])}, "versions": {"5": {"w": torch.tensor([9.0])}}}
    alpha = 0.6 * 3**-0.5
    after = fedasync().combine(state, as_delivered([answer(0, 3.0, version=5)]), 7)
    assert float(after["model"]["w"]) == pytest.approx((1 - alpha) * 1 + alpha * 3)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({"decay": "constant"}, [1, 1, 1, 1]),
        ({"decay": "polynomial"}, [1, 2**-0.5, 5**-0.5, 7**-0.5]),
        ({"decay": "hinge"}, [1, 1, 1, 1 / 21]),
    ],
)
def test_old_answers_weigh_less(settings: dict[str, Any], weights: list[float]) -> None:
    assert [fedasync(**settings).weight_of(x) for x in (0, 1, 4, 6)] == pytest.approx(weights)


def test_the_buffer_by_hand() -> None:
    """w = 2 at step 4; an answer 5 from w_4 = 2 and one 0 from w_1 = 1: (1 * 3 + 1/2 * (-1)) / 2, times 0.5."""
    method = fedbuff(buffer=2, server_lr=0.5)
    method.parameters = ("w",)
    state = {
        "model": {"w": torch.tensor([2.0])},
        "versions": {"4": {"w": torch.tensor([2.0])}, "1": {"w": torch.tensor([1.0])}},
    }
    heard = [answer(0, 5.0, version=4), answer(1, 0.0, version=1)]
    after = method.combine(state, as_delivered(heard), 4)
    assert float(after["model"]["w"]) == pytest.approx(2 + 0.5 * (3 - 0.5) / 2)
    ageless = fedbuff(buffer=2, server_lr=0.5, decay="constant")
    ageless.parameters = ("w",)
    assert float(ageless.combine(state, as_delivered(heard), 4)["model"]["w"]) == pytest.approx(2.5)


def test_fedbuff_is_fedasync_with_a_buffer() -> None:
    buffered = fedasync(mix="buffer", buffer=2, concurrency=20, rho=0.0)
    assert same(run(fedbuff(buffer=2), **WORLD), run(buffered, **WORLD))
    assert not close(run(fedbuff(buffer=2), **WORLD), run(fedbuff(buffer=2, rho=1.0), **WORLD))


def test_nobody_answers_twice_in_a_buffer(tmp_path: Path) -> None:
    log = log_of(run(fedbuff(buffer=3, concurrency=2, rounds=4), folder=tmp_path, script=EVERYONE))
    assert len(log) == 12 and len({(t, k) for t, k, _ in log}) == 12
    assert len({(k, v) for _, k, v in log}) == 12  # nor is a version trained twice by one client
    assert any(t > v for t, _, v in log)


def test_an_update_is_clipped_relative_to_the_version_it_started_from(tmp_path: Path) -> None:
    clip = DPGaussian(DPGaussian.Config(clip_norm=0.01, noise_multiplier=0.0))
    world = run(
        fedbuff(buffer=2, concurrency=3, rounds=5, server_lr=3.0),
        folder=tmp_path,
        script=EVERYONE,
        protections=[clip],
    )
    versions = {
        a.round: a.payload
        for a in world.artifacts
        if a.kind == Kind.GLOBAL_MODEL and a.channel == Channel.DOWNLINK
    }
    answers = {(a.round, a.sender): a.payload for a in world.artifacts if a.kind == Kind.LOCAL_MODEL}
    ages = []
    for a in world.artifacts:
        if a.kind == Kind.STALENESS and a.channel == Channel.UPLINK:
            version, model = int(a.payload["version"]), answers[a.round, a.sender]
            gap = sum(((model[k] - w) ** 2).sum() for k, w in versions[version].items()) ** 0.5
            assert gap == pytest.approx(0.01, rel=1e-3)
            ages.append(a.round - version)
    assert max(ages) > 0


def test_only_versions_in_use_are_kept(tmp_path: Path) -> None:
    run(fedasync(rounds=30, concurrency=3), folder=tmp_path, script=EVERYONE)
    state = tree.load(tmp_path / "checkpoint" / "state.safetensors")["state"]
    assert len(state["flight"]) == 2 and 1 <= len(state["versions"]) <= 2


def test_every_lost_reply_leaves_the_model_alone_and_the_run_ends() -> None:
    world = run(fedasync(), script=EVERYONE, reply_loss=1.0)
    assert same(world.model, world.initial)
    assert [r["delivered"] for r in world.history] == [0, 0, 0]
    assert [r["lost"] for r in world.history] == [4, 4, 4]


@pytest.mark.parametrize(
    "make", [lambda: fedasync(rounds=8, concurrency=3), lambda: fedbuff(rounds=5, buffer=2, concurrency=3)]
)
def test_a_run_that_was_stopped_with_clients_in_flight_continues_to_the_same_bits(
    make: Any, tmp_path: Path
) -> None:
    assert continues(make, tmp_path, **WORLD)


def test_two_processes_agree_with_one() -> None:
    """Two workers do the next client's work before it is needed; one does not."""
    method = {"rounds": 6, "concurrency": 3}
    a, b = (run(fedasync(**method), script=EVERYONE, workers=w) for w in (0, 2))
    assert same(a, b) and a.history == b.history


@pytest.mark.parametrize(
    ("make", "settings", "complaint"),
    [
        (fedasync, {"alpha": 0.0}, "alpha must be > 0"),
        (fedasync, {"concurrency": 0}, "concurrency must be >= 1"),
        (fedasync, {"rho": -1.0}, "rho must be >= 0"),
        (fedbuff, {"buffer": 0}, "buffer must be >= 1"),
        (fedbuff, {"mix": "each"}, "mix must be"),
        (fedbuff, {"speed_spread": 0.5}, "speed_spread must be >= 1"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make(**settings)
