"""FreezeFL: what slow clients leave out, what the server makes of it, and that without freezing it is FedAvg."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.clients.client import Client
from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.freezefl import FemnistCNN
from fedaudit.fl.families.layers import layers
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.freezefl import FreezeFL
from fedaudit.fl.protections.dp_sgd import DPSGD
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import Tree
from tests.fl.worlds import EVERYONE, Stopped, TinyNet, World, as_delivered, run, same

COMMON: dict[str, Any] = {"rounds": 4, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9}
WORKLOAD = FemnistCNN(FemnistCNN.Config(bandwidth=1e-3, compute=1e-3)).workload(TinyNet(), (1, 6, 6))
TIMES = TimeModel(capability=np.array([0.5, 1.0, 3.0, 1.0, 0.5]), workload=WORKLOAD)
SIZES = (4 * (36 + 4), 4 * (36 * 8 + 8), 4 * (8 * 4 + 4))  # bytes of TinyNet's layers
OFF: dict[str, Any] = {"beta": 0.0, "selection": False}


def freeze(**settings: Any) -> FreezeFL:
    return FreezeFL(FreezeFL.Config(**(COMMON | {"deadline": 1e-3} | settings)))


def sent(world: World, kind: Kind) -> list[Artifact]:
    return [a for a in world.artifacts if a.kind == kind and a.channel == Channel.UPLINK]


def test_without_beta_and_selection_it_is_fedavg_bit_for_bit() -> None:
    """Momentum, unequal sizes, partial participation, an empty round that is drawn again."""
    theirs = run(FedAvg(FedAvg.Config(**COMMON)), time_model=TIMES)
    ours = run(freeze(**OFF), time_model=TIMES)
    assert same(theirs, ours) and [h["redraws"] for h in ours.history] == [0, 1, 0, 0]
    assert not same(theirs, run(freeze(beta=4.0, selection=False), time_model=TIMES))


def test_killed_and_continued_it_is_fedavg_too(tmp_path: Path) -> None:
    theirs = run(FedAvg(FedAvg.Config(**COMMON)), time_model=TIMES)
    with pytest.raises(Stopped):
        run(freeze(**OFF), time_model=TIMES, folder=tmp_path, stop_after=2)
    assert same(theirs, run(freeze(**OFF), time_model=TIMES, folder=tmp_path))


def test_clients_in_time_freeze_nothing_and_late_ones_send_so_many_bytes_less(tmp_path: Path) -> None:
    tight = run(
        freeze(beta=1e5, selection=False, rounds=1), time_model=TIMES, script=EVERYONE, folder=tmp_path / "a"
    )
    counts = {a.sender.index: int(a.payload["count"]) for a in sent(tight, Kind.FROZEN_COUNT)}
    for a in sent(tight, Kind.UNFROZEN_LAYERS):
        assert a.size_bytes == sum(SIZES[counts[a.sender.index] :])
    assert set(counts.values()) == {2}  # everybody is late, and beta counts nothing but time
    free = run(freeze(deadline=1e6, selection=False, rounds=1), time_model=TIMES, folder=tmp_path / "b")
    assert {int(a.payload["count"]) for a in sent(free, Kind.FROZEN_COUNT)} == {0}


def test_layers_that_all_freeze_stay_as_they_were_to_the_bit() -> None:
    world = run(freeze(beta=1e5, selection=False, deadline_weight=0.0), time_model=TIMES)
    for names in layers(TinyNet())[:2]:
        assert all(torch.equal(world[k], world.initial[k]) for k in names)
    assert not torch.equal(world["head.weight"], world.initial["head.weight"])


class Watching(FreezeFL):
    """Client 0 freezes a layer; with `layerwise: false` it sends it, so that a test can see what it is."""

    def decide_frozen_layers(self, client: Client, weights: Any) -> int:
        return 1 if client.index == 0 else 0


def test_a_frozen_layer_is_the_received_one_and_the_others_keep_training(tmp_path: Path) -> None:
    settings = COMMON | {"rounds": 1, "layerwise": False, "selection": False}
    world = run(Watching(Watching.Config(**settings)), script=EVERYONE, folder=tmp_path)
    uploads = {a.sender.index: a.payload for a in sent(world, Kind.UNFROZEN_LAYERS)}
    first, second = layers(TinyNet())[:2]
    assert all(uploads[0][k].tobytes() == world.initial[k].numpy().tobytes() for k in first)
    assert all(uploads[0][k].tobytes() != world.initial[k].numpy().tobytes() for k in second)
    assert all(uploads[1][k].tobytes() != world.initial[k].numpy().tobytes() for k in first)


def of_two_layers(**settings: Any) -> FreezeFL:
    method = freeze(**settings)
    method.blocks, method.parameters = (("a",), ("b",)), ("a", "b")
    return method


def delivery(client: int, frozen: int, time: float, examples: int, **payload: list[float]) -> Delivery:
    arrays = {k: torch.tensor(v, dtype=torch.float64) for k, v in payload.items()}
    message = {Kind.UNFROZEN_LAYERS: arrays, Kind.FROZEN_COUNT: {"count": torch.tensor(frozen)}}
    return Delivery(client=client, message=message, examples=examples, time=time)


def before(**more: Any) -> Tree:
    zero = torch.zeros(2, dtype=torch.float64)
    return {
        "model": {"a": zero, "b": zero},
        "deadline": 1.0,
        "utilities": torch.full((2,), 10.0, dtype=torch.float64),
        "participations": torch.zeros(2, dtype=torch.int64),
    } | more


def test_a_layer_is_averaged_over_those_who_trained_it_and_the_deadline_follows_their_times() -> None:
    """F3 and F4."""
    heard = [delivery(0, 1, 0.4, 30, b=[4.0, 8.0]), delivery(1, 0, 0.6, 10, a=[1.0, 2.0], b=[0.0, 4.0])]
    after = of_two_layers(selection=False).combine(before(), as_delivered(heard), 0)
    assert after["model"]["a"].tolist() == [1.0, 2.0]
    assert after["model"]["b"].tolist() == [(30 * 4) / 40, (30 * 8 + 10 * 4) / 40]
    assert after["deadline"] == pytest.approx(0.8)


def test_utilities_of_those_heard_follow_how_their_layers_moved() -> None:
    """F5: equal weights make the shared model move by (.2, 0) and (.2, .2)."""
    heard = [delivery(0, 1, 1.0, 10, b=[0.4, 0.0]), delivery(1, 0, 1.0, 10, a=[0.2, 0.0], b=[0.0, 0.4])]
    after = of_two_layers(utility_weight=0.9).combine(before(), as_delivered(heard), 0)
    a, b = 1 * (0.4 * 0.2) / 2, 2 * (0.2 * 0.2 + 0.4 * 0.2) / 2
    assert after["utilities"].tolist() == pytest.approx([1 + 0.9 * a, 1 + 0.9 * b])
    assert after["participations"].tolist() == [1, 1]


def test_a_warm_restart_ends_every_period_of_rounds_which_the_paper_counts_from_one() -> None:
    heard = [delivery(0, 1, 1.0, 10, b=[0.4, 0.0]), delivery(1, 0, 1.0, 10, a=[0.2, 0.0], b=[0.0, 0.4])]
    for period in (1, 2, 3):
        method, state, counts = of_two_layers(restart_every=period), before(), []
        for t in range(6):
            state = method.combine(state, as_delivered(heard), t)
            counts.append(int(state["participations"][0]))
        assert counts == [(t + 1) % period for t in range(6)]  # answers since the last restart


def test_the_server_draws_as_many_clients_as_it_is_to() -> None:
    world = run(freeze(clients_per_round=2), script=EVERYONE, time_model=TIMES)
    assert [h["selected"] for h in world.history] == [2] * 4


@pytest.mark.parametrize("probe", ["continue", "public_code"])
def test_charges_of_an_epoch_more_or_less(probe: Any) -> None:
    profile = WORKLOAD.profile
    assert freeze(local_epochs=3, charge="epochs").charge_work(2, WORKLOAD) == 3 * profile[2]
    assert freeze(local_epochs=3, charge="probe").charge_work(2, WORKLOAD) == profile[0] + 2 * profile[2]
    assert freeze(local_epochs=3, charge="really").charge_work(2, WORKLOAD) == profile[0] + 3 * profile[2]
    world = run(freeze(beta=1e5, selection=False, probe=probe), time_model=TIMES)
    assert sum(h["frozen_layers"] for h in world.history) > 0


def test_training_with_differential_privacy_is_refused() -> None:
    with pytest.raises(UserError, match="counts steps, and this method decides after an epoch"):
        run(freeze(selection=False), time_model=TIMES, protections=[DPSGD(DPSGD.Config(noise_multiplier=1.0))])


@pytest.mark.parametrize("said", [-7, 99])
def test_a_client_that_says_an_impossible_number_of_frozen_layers_is_taken_at_the_nearest(said: int) -> None:
    heard = [delivery(0, said, 1.0, 10, b=[0.4, 0.0]), delivery(1, 0, 1.0, 10, a=[0.2, 0.0], b=[0.0, 0.4])]
    after = of_two_layers(utility_weight=0.9).combine(before(), as_delivered(heard), 0)
    assert torch.isfinite(after["utilities"]).all() and (after["utilities"] >= 1e-5).all()
    assert freeze().estimate_cost(0, heard[0].message, 10, WORKLOAD) in {
        freeze().charge_work(n, WORKLOAD) for n in range(5)
    }


@pytest.mark.parametrize("probe", ["continue", "public_code"])
@pytest.mark.parametrize("charge", ["epochs", "probe", "really"])
def test_no_epochs_train_nothing_and_take_no_time_but_the_exchange(probe: Any, charge: Any) -> None:
    idle = freeze(local_epochs=0, selection=False, probe=probe, charge=charge)
    world = run(idle, time_model=TIMES)
    assert same(world.model, world.initial) and idle.charge_work(0, WORKLOAD) == 0
