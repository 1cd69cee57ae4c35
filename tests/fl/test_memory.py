"""Ten thousand clients fit in memory, and the server does not grow with their number.

Every measurement in bytes runs in a process of its own, whose peak is then its own.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from fedaudit.fl.artifact import Channel
from fedaudit.fl.availability.full import Full
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.models.resnet18 import ResNet18
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.recording.checkpoint import Checkpoints
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Protection
from fedaudit.fl.wire.wire import Wire

GIB = 1 << 30
MIB = 1 << 20


class Linear(Net):
    """7,850 parameters, 31 kB."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10)
        self.head = nn.Linear(784, 10)

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class CNN(Net):
    """80,202 parameters, 321 kB."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10)
        self.first, self.second = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.fc, self.head = nn.Linear(512, 128), nn.Linear(128, 10)

    def features(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.first(x).relu(), 2)
        x = nn.functional.max_pool2d(self.second(x).relu(), 2)
        return self.fc(x.flatten(1)).relu()


def data(n: int = 60_000) -> Data:
    """Fashion-MNIST's shape: [n, 1, 28, 28] bytes over 255, 188 MB."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, 1, 28, 28), np.uint8).astype(np.float32) / 255
    y = rng.integers(0, 10, n).astype(np.int64)
    return Data(
        train=Arrays(x=x, y=y),
        test=Arrays(x=x[:1000], y=y[:1000]),
        classes=tuple("0123456789"),
        mean=(0.5,),
        std=(0.3,),
    )


class Large(ResNet18):
    """11 million parameters, 45 MB."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10, ResNet18.Config())


def one_round(clients: int, make: type[Net], workers: int, each: int = 100) -> None:
    """A round of FedAvg with `each` samples a client; neighbours share samples where they run out."""
    d, streams = data(), Streams(1)
    index = [np.arange(each * k, each * (k + 1)) % len(d.train) for k in range(clients)]
    method = FedAvg(FedAvg.Config(rounds=1, local_epochs=1, batch_size=50))
    holdings = Holdings(d, index, streams)
    site = partial(build_site, method, holdings, make, "cpu")
    with worker_kinds.start(workers, site) as pool:
        federation = Federation(
            holdings=holdings,
            initial=state_of(initialise(make, streams)),
            availability=Full(),
            wire=Wire(FedAvg.card, streams),
            workers=pool,
        )
        method.run(federation)
    [round] = federation.history
    assert round["delivered"] == clients and round["samples_used"] == each * clients
    size = sum(4 * v.numel() for v in state_of(make()).values())  # type: ignore[call-arg]
    assert round[f"bytes_{Channel.UPLINK.removesuffix('link')}"] == clients * (size + 8)


def measure(clients: int, make: type[Net], workers: int, each: int) -> None:
    """Print the peak resident size, in bytes, of this process and of its largest child."""
    import resource

    one_round(clients, make, workers, each)
    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(peaks))


def peak(clients: int, make: type[Net], workers: int, each: int = 100) -> tuple[int, int]:
    call = f"import tests.fl.test_memory as m; m.measure({clients}, m.{make.__name__}, {workers}, {each})"
    # A process begins with the peak of the one that started it: a shell has none to speak of, tests may have
    shell = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", call]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=900)
    assert done.returncode == 0, done.stderr
    own, child = json.loads(done.stdout)
    return own, child


class Counted(Wire):
    """Notes how many copies of the weights 784 x 10 lie in memory when the last client of a round was heard."""

    copies = 0

    def uplink(self, round: int, message: Message, sender: int, *rest: Any, **more: Any) -> Message | None:
        heard = super().uplink(round, message, sender, *rest, **more)
        if sender == self.last:
            gc.collect()
            tensors = [v for v in gc.get_objects() if type(v) is Tensor and v.numel() == 7840]
            self.copies = max(self.copies, len({v.data_ptr() for v in tensors}))
        return heard

    last = 0  # client


def count_copies(
    clients: int, folder: Path, method: type[RoundMethod] = FedAvg, protections: Sequence[Protection] = ()
) -> int:
    """The most copies of the weights that two recorded rounds of so many clients hold at an upload."""
    rng, streams = np.random.default_rng(0), Streams(1)
    arrays = Arrays(x=rng.random((2 * clients, 1, 28, 28), np.float32), y=np.arange(2 * clients) % 10)
    holdings = Holdings(
        Data(train=arrays, test=arrays, classes=tuple("0123456789")),
        np.split(np.arange(2 * clients), clients),
        streams,
    )
    made = method(method.Config(rounds=2, local_epochs=1, batch_size=2))
    recorder = Recorder(folder / "artifacts")
    wire = Counted(method.card, streams, protections, recorder)
    wire.last = clients - 1
    with worker_kinds.start(0, partial(build_site, made, holdings, Linear, "cpu")) as pool:
        federation = Federation(
            holdings=holdings,
            initial=state_of(initialise(Linear, streams)),
            availability=Full(),
            wire=wire,
            workers=pool,
            checkpoints=Checkpoints(folder, {"artifacts": recorder.manifest}),
        )
        made.run(federation)
    return wire.copies


def test_a_server_holds_as_many_models_for_thirty_clients_as_for_three(tmp_path: Path) -> None:
    few = count_copies(3, tmp_path / "few")
    assert count_copies(30, tmp_path / "many") == few <= 8


def test_a_server_behind_secure_aggregation_holds_no_more_models_for_more_clients(tmp_path: Path) -> None:
    few, many = (count_copies(n, tmp_path / str(n), protections=[SecureAggregation()]) for n in (3, 30))
    assert many == few


def test_what_clients_keep_takes_a_copy_a_client(tmp_path: Path) -> None:
    """The counter sees a copy that somebody holds."""
    few, many = (count_copies(n, tmp_path / str(n), method=Scaffold) for n in (3, 30))
    assert many - few >= 27


@pytest.mark.nightly
def test_ten_thousand_clients_stay_below_3_gib() -> None:
    own, child = peak(10_000, Linear, workers=2)
    assert own + 2 * child < 3 * GIB  # pages that the processes share are counted for each


@pytest.mark.nightly
def test_a_network_of_80_000_parameters_stays_below_3_gib() -> None:
    own, child = peak(1000, CNN, workers=2)
    assert own + 2 * child < 3 * GIB


@pytest.mark.nightly
def test_fifty_clients_of_a_resnet18_stay_below_4_gib() -> None:
    own, child = peak(50, Large, workers=2, each=2)
    assert own + 2 * child < 4 * GIB


@pytest.mark.nightly
def test_ten_times_the_clients_take_no_more_memory() -> None:
    few, many = peak(500, Linear, workers=2)[0], peak(5000, Linear, workers=2)[0]
    assert many - few < 40 * MIB  # 4,500 models held at a time would be 141 MB
