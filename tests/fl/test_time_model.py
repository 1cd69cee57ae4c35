"""The simulated clock against the figures of FreezeFL's code, and against torch's own count of operations."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedaudit.fl.clients.time_model import (
    MEGABYTE,
    Devices,
    TimeModel,
    Workload,
    capabilities,
    clock,
    round_length,
    training_cost,
)
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.devices.freezefl import FemnistCNN, ShakespeareRNN
from fedaudit.fl.families.layers import layers, multiply_adds
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, state_of
from fedaudit.fl.models import cnns, rnns
from fedaudit.fl.models.resnet18 import ResNet18
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.local import train
from tests.fl.worlds import run

CNN, RNN = 4 * 4_377_534, 4 * 817_872  # bytes
NET = torch.nn.Linear(2, 2)
FEMNIST, SHAKESPEARE = FemnistCNN().workload(NET, (2,)), ShakespeareRNN().workload(NET, (2,))


def model(workload: Workload = FEMNIST) -> TimeModel:
    return TimeModel(capability=np.array([1.0, 0.5, 3.0]), workload=workload)


def test_the_models_have_their_published_sizes() -> None:
    assert pytest.approx(16.7, abs=0.05) == CNN / MEGABYTE
    assert pytest.approx(3.1, abs=0.05) == RNN / MEGABYTE


def test_a_known_task_time_by_hand() -> None:
    time = model().task_time(
        1, bytes_down=3 * MEGABYTE, bytes_up=MEGABYTE, examples=100, cost=2 * FEMNIST.frozen(3)
    )
    assert time == pytest.approx(4 / (100 * 0.5) + 1.43990e-4 * 100 * 2 / (0.4 * 0.5))


def test_communication_and_computation_are_equal_at_227_examples_of_the_cnn() -> None:
    exchange = model().task_time(0, bytes_down=CNN, bytes_up=CNN, examples=0, cost=1.0)
    training = model().task_time(0, bytes_down=0, bytes_up=0, examples=227, cost=3 * FEMNIST.profile[0])
    assert training == pytest.approx(exchange, rel=0.03)


def test_the_slowest_client_takes_six_times_as_long_as_the_fastest() -> None:
    times = {k: model().task_time(k, bytes_down=CNN, bytes_up=9, examples=50, cost=5e-4) for k in (0, 1, 2)}
    assert times[1] / times[2] == pytest.approx(6)
    assert round_length(times) == times[1] and round_length({}) == 0


def test_the_profile_of_the_cnn_has_the_pool_and_the_flattening_go_with_the_layer_before() -> None:
    """Entries 1, 4, 7, 8 and 9 of the public list, which counts every Keras layer."""
    assert FEMNIST.profile == (1.93564e-4, 1.77742e-4, 1.62296e-4, 1.43990e-4, 1.43990e-4)
    assert SHAKESPEARE.profile == (1.39197e-4, 1.27089e-4, 1.03903e-4, 0.76649e-4)
    assert FEMNIST.frozen(9) == FEMNIST.profile[4]


def test_times_of_freezing_one_client_of_300_examples() -> None:
    """F7: femnist_cnn, capability .5, three epochs charged as the authors' code does."""
    sizes = [4 * n for n in (4_377_534, 4_376_702, 4_325_438, 1_113_150, 63_550)]
    tau = clock(model(), 1, 300)
    times = [tau(CNN, up, 3 * FEMNIST.frozen(n)) for n, up in enumerate(sizes)]
    assert times == pytest.approx([1.538995, 1.467733, 1.394316, 1.066859, 0.986781], abs=1e-5)


def test_capabilities_are_eight_shuffled_tiers_of_equal_size() -> None:
    kappa = capabilities(80, np.random.default_rng(1))
    values, counts = np.unique(kappa, return_counts=True)
    assert values == pytest.approx(0.5 + np.arange(8) * 2.5 / 7)
    assert set(counts) == {10} and not (np.diff(kappa) >= 0).all()
    assert len(capabilities(3, np.random.default_rng(1))) == 3


COUNTED: dict[str, tuple[Any, ...]] = {  # multiply-adds an example, by torch's own counter
    "femnist_cnn": (
        cnns.FemnistCNN((1, 28, 28), 62),
        (44_329_984, 33_667_584, 20_421_120, 16_161_280, 15_049_216),
    ),
    "cnn_w": (cnns.CnnW((1, 28, 28), 10), (3_118_848, 2_069_248, 1_184_512, 1_117_696)),
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_cost_of_freezing_is_that_of_the_published_count(name: str) -> None:
    net, golden = COUNTED[name]
    assert training_cost(multiply_adds(net, layers(net), (1, 28, 28))) == golden


def by_torch(net: Net, x: torch.Tensor, y: torch.Tensor, frozen: int) -> int:
    """Multiply-adds of an epoch with all layers and one without the first ones, through the shared loop."""
    first = [name for names in layers(net)[:frozen] for name in names]
    method = FedAvg(FedAvg.Config(local_epochs=2, batch_size=len(y)))
    with FlopCounterMode(display=False) as counter:
        train(
            method,
            net,
            state_of(net),
            x,
            y,
            {},
            torch.Generator().manual_seed(0),
            after_epoch=lambda epoch, _: first if epoch == 1 else (),
        )
    return int(counter.get_total_flops()) // 2


@pytest.mark.parametrize(("name", "frozen"), [(m, n) for m, c in COUNTED.items() for n in range(len(c[1]))])
def test_torch_counts_the_same_in_the_training_loop(name: str, frozen: int) -> None:
    net, golden = COUNTED[name]
    x, y = torch.rand(2, 1, 28, 28), torch.tensor([0, 1])
    assert by_torch(net, x, y, frozen) == 2 * (golden[0] + golden[frozen])


def test_torch_counts_the_same_for_the_linear_part_of_the_recurrent_network() -> None:
    """Its counter knows no LSTM; the last layer's 256 x 80 are counted both ways, whatever is frozen."""
    net = rnns.ShakespeareRNN((5,), 80)
    linear = training_cost((0, 0, 0, 256 * 80))
    x, y = torch.zeros(2, 5, dtype=torch.long), torch.tensor([0, 1])
    for frozen in range(4):
        assert by_torch(net, x, y, frozen) == 2 * (linear[0] + linear[frozen])
    lstm = 5 * 4 * 256
    assert multiply_adds(net, layers(net), (5,)) == (0, lstm * (9 + 256), lstm * (257 + 256), 256 * 80)


def test_a_normalisation_layer_belongs_to_the_layer_before_it() -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Linear(2, 2)
    )
    bn = ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert layers(net) == (("0.weight", "0.bias", *bn), ("3.weight", "3.bias"))
    whole = ResNet18((3, 8, 8), 10)
    assert sorted(k for names in layers(whole) for k in names) == sorted(whole.state_dict())


def test_layer_costs_must_be_costs() -> None:
    with pytest.raises(UserError, match=r"layer costs must be >= 0 and not all 0, got \[0, 0\]"):
        training_cost([0, 0])


def test_counted_devices_take_as_long_as_the_cnn_of_the_profile() -> None:
    workload = Counted().workload(COUNTED["femnist_cnn"][0], (1, 28, 28))
    assert workload.profile[0] == pytest.approx(1.93564e-4)
    ratios = np.array(workload.profile) / workload.profile[0]
    assert ratios.round(4).tolist() == [1, 0.7595, 0.4607, 0.3646, 0.3395]
    assert workload.at_width(1.0) == workload.profile[0] > 3 * workload.at_width(0.5)
    assert SHAKESPEARE.at_width(0.25) == SHAKESPEARE.profile[0]


def test_a_workload_without_bandwidth_and_tiers_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match="bandwidth, compute and profile must be > 0"):
        Workload(bandwidth=0, compute=1, profile=(1.0,))
    with pytest.raises(UserError, match=r"tiers must be \[slowest > 0.*got \[3, 1, 2\]"):
        Devices.Config(tiers=(3, 1, 2))


def test_jitter_is_a_factor_of_each_round_and_client_that_has_no_effect_at_zero() -> None:
    still = model()
    assert still.add_delay(2.0, 0, 1) == 2.0
    shaken = TimeModel(capability=still.capability, workload=FEMNIST, jitter=0.2, streams=Streams(3))
    logs = np.log([shaken.add_delay(1.0, r, k) for r in range(50) for k in range(20)])
    assert logs.std() == pytest.approx(0.2, rel=0.1) and abs(logs.mean()) < 0.03
    assert shaken.add_delay(1.0, 4, 2) == shaken.add_delay(1.0, 4, 2) != shaken.add_delay(1.0, 4, 3)


def test_a_round_takes_as_long_as_its_slowest_client_heard() -> None:
    capability = np.array([1.0, 0.5, 1.0, 3.0, 2.0])
    times = TimeModel(capability=capability, workload=FEMNIST)
    config = FedAvg.Config(rounds=3, local_epochs=2, batch_size=8)
    history = run(FedAvg(config), time_model=times).history
    size = history[0]["bytes_down"] / 5 + history[0]["bytes_up"] / 4
    slowest = max(
        times.task_time(k, bytes_down=int(size), bytes_up=0, examples=n, cost=2 * FEMNIST.profile[0])
        for k, n in {0: 7, 1: 20, 2: 11, 4: 30}.items()
    )
    assert history[0]["round_length"] == pytest.approx(slowest)


def test_the_server_sees_when_each_answer_came_and_nobody_sent_it(tmp_path: Any) -> None:
    times = TimeModel(capability=np.array([1.0, 0.5, 1.0, 3.0, 2.0]), workload=FEMNIST)
    timed = run(FedAvg(FedAvg.Config(rounds=1)), time_model=times, folder=tmp_path / "timed")
    bare = run(FedAvg(FedAvg.Config(rounds=1)), folder=tmp_path / "bare")
    seen = [a for a in timed.artifacts if a.kind == "task_time"]
    assert {a.channel for a in seen} == {"observed"} and {a.seen_by for a in seen} == {("server",)}
    assert max(float(a.payload["time"]) for a in seen) == pytest.approx(timed.history[0]["round_length"])
    assert len(seen) == 4 and not [a for a in bare.artifacts if a.kind == "task_time"]
    assert timed.history[0].items() >= bare.history[0].items()
    assert timed.history[0]["heard"] == [0, 1, 2, 4] and timed.history[0]["heard_slow"] == 1
    lines = (tmp_path / "timed" / "ledger.jsonl").read_text().splitlines()
    own = [line for line in lines if json.loads(line)["kind"] != "task_time"]
    assert own == (tmp_path / "bare" / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == len(own) + 1 and json.loads(lines[-1])["observers"] == ["server"]


@pytest.mark.parametrize(
    ("capability", "jitter"),
    [((0.0, 1.0), 0.0), ((1e-320, 1.0), 0.0), ((float("nan"), 1.0), 0.0), ((1.0, 1.0), 1e6)],
)
def test_a_client_that_would_take_for_ever_ends_the_run_in_a_sentence(
    capability: tuple[float, float], jitter: float
) -> None:
    """Round lengths, means and deadlines would be infinite from then on."""
    times = TimeModel(capability=np.array(capability), workload=FEMNIST, jitter=jitter, streams=Streams(3))
    with pytest.raises(UserError, match="client 0 would take for ever"):
        for r in range(50):
            times.add_delay(times.task_time(0, bytes_down=CNN, bytes_up=CNN, examples=50, cost=5e-4), r, 0)


@pytest.mark.parametrize(("said", "charged"), [(-9, 0), (-1, 0), (3, 3), (4, 4), (10**9, 4)])
def test_any_number_of_frozen_layers_that_a_client_says_has_a_price(said: int, charged: int) -> None:
    assert FEMNIST.frozen(said) == FEMNIST.profile[charged]
