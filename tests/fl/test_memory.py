"""Ten thousand clients fit in memory, and the server does not grow with their number.

Every measurement runs in a process of its own, whose peak is then its own.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from fedaudit.fl.artifact import Channel
from fedaudit.fl.availability.full import Full
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.streams import Streams
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


def one_round(clients: int, make: type[Net], workers: int) -> None:
    """A round of FedAvg with 100 samples a client; neighbours share samples where they run out."""
    d, streams = data(), Streams(1)
    index = [np.arange(100 * k, 100 * (k + 1)) % len(d.train) for k in range(clients)]
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
    assert round["delivered"] == clients and round["samples_used"] == 100 * clients
    size = sum(4 * v.numel() for v in state_of(make()).values())  # type: ignore[call-arg]
    assert round[f"bytes_{Channel.UPLINK.removesuffix('link')}"] == clients * (size + 8)


def measure(clients: int, make: type[Net], workers: int) -> None:
    """Print the peak resident size, in bytes, of this process and of its largest child."""
    import resource

    one_round(clients, make, workers)
    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(peaks))


def peak(clients: int, make: type[Net], workers: int) -> tuple[int, int]:
    call = f"import tests.fl.test_memory as m; m.measure({clients}, m.{make.__name__}, {workers})"
    # A process begins with the peak of the one that started it: a shell has none to speak of, tests may have
    shell = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", call]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=900)
    assert done.returncode == 0, done.stderr
    own, child = json.loads(done.stdout)
    return own, child


@pytest.mark.nightly
def test_ten_thousand_clients_stay_below_3_gib() -> None:
    own, child = peak(10_000, Linear, workers=2)
    assert own + 2 * child < 3 * GIB  # pages that the processes share are counted for each


@pytest.mark.nightly
def test_a_network_of_80_000_parameters_stays_below_3_gib() -> None:
    own, child = peak(1000, CNN, workers=2)
    assert own + 2 * child < 3 * GIB


@pytest.mark.nightly
def test_ten_times_the_clients_take_no_more_memory() -> None:
    few, many = peak(500, Linear, workers=2)[0], peak(5000, Linear, workers=2)[0]
    assert many - few < 40 * MIB  # 4,500 models held at a time would be 141 MB
