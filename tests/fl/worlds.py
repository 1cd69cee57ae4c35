"""Small federations for tests: unequal clients, one without data, lost replies, an empty round.

`run(method)` runs a method through the public entry points and returns what happened.
"""

import itertools
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedaudit.fl.aggregation.aggregator import Aggregator, Averages, mean
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.clients.failures import FailureConfig
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, Participation
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.execution.batched import WIDTH, Batched, leave_uploads
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.recording.checkpoint import Checkpoints
from fedaudit.fl.recording.recorder import Recorder, read
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.threats.compromise import Compromise, choose_compromised_clients
from fedaudit.fl.wire.protection import Protection
from fedaudit.fl.wire.wire import Wire

CLASSES = 4


class TinyNet(Net):
    """One convolution, one linear feature layer (leaky, so signs differ), one head."""

    def __init__(self, shape: tuple[int, ...] = (1, 6, 6), classes: int = CLASSES) -> None:
        super().__init__(shape, classes)
        self.conv = nn.Conv2d(shape[0], 4, 3, padding=1)
        self.fc = nn.Linear(4 * 3 * 3, 8)
        self.head = nn.Linear(8, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(self.conv(x)), 2)
        return nn.functional.leaky_relu(self.fc(x.flatten(1)))


class NormalisedNet(TinyNet):
    """With BatchNorm, whose statistics and counter of batches are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(super().features(x))
        return normed


def adapted(folds: bool = False, rank: int = 8, seed: int = 11) -> Net:
    """TinyNet, whose weights are the same each time, below adapters of its feature layer; the head is trained."""
    net = initialise(TinyNet, Streams(9))
    return attach(net, rank, 2.0 * rank, ["fc"], ["head"], folds=folds, seed=seed)


class Scripted(Availability):
    """A fixed script: round -> (selected, answering); redraws take the next line."""

    title = "scripted"

    def __init__(self, script: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        super().__init__()
        self.script = script

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        selected, answering = self.script[(round + attempt) % len(self.script)]
        allowed = set(candidates)
        return Participation(
            tuple(k for k in selected if k in allowed), tuple(k for k in answering if k in allowed)
        )

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn() if all(len(set(heard)) == clients for _, heard in self.script) else UNKNOWN

    def describe(self) -> str:
        return "a fixed script"


# Clients 0..4; client 3 has no data; round 1 is empty; round 2 lacks client 4.
SCRIPT = [([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]), ([0, 2], []), ([0, 1, 2, 4], [0, 1, 2])]
EVERYONE = [([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])]


def data(seed: int = 3, n: int = 80) -> Data:
    """Four classes of 6x6 images whose bright quadrant is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n + 40).astype(np.int64)
    x = rng.uniform(0, 0.6, (n + 40, 1, 6, 6)).astype(np.float32)
    for i, c in enumerate(y):
        x[i, 0, 3 * (c // 2) : 3 * (c // 2) + 3, 3 * (c % 2) : 3 * (c % 2) + 3] += 0.4
    return Data(
        train=Arrays(x=x[:n], y=y[:n]),
        test=Arrays(x=x[n:], y=y[n:]),
        classes=tuple("abcd"),
        mean=(0.4,),
        std=(0.25,),
    )


def parts(d: Data, sizes: Sequence[int] = (7, 20, 11, 0, 30), skew: bool = True) -> list[np.ndarray]:
    """Unequal clients; with skew, client 0 has one class and client 1 two."""
    order = np.arange(len(d.train))
    if skew:
        rank = {0: 0, 1: 1, 2: 1, 3: 2}
        order = np.array(sorted(order, key=lambda i: (rank[int(d.train.y[i])], i)))
    cuts = np.cumsum([0, *sizes])
    return [order[a:b] for a, b in itertools.pairwise(cuts)]


@dataclass
class World:
    """What a run leaves."""

    model: State
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    initial: State = field(default_factory=dict)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.model[name]


def run(
    method: RoundMethod,
    *,
    folder: Path | None = None,
    workers: int | str = 0,
    d: Data | None = None,
    index: list[np.ndarray] | None = None,
    script: Sequence[tuple[Sequence[int], Sequence[int]]] = SCRIPT,
    empty_round: str = "redraw",
    reply_loss: float = 0.0,
    failures: FailureConfig | None = None,
    protections: Sequence[Protection] = (),
    seed: int = 5,
    make: Any = None,
    stop_after: int | None = None,
    initial: State | None = None,
    time_model: Any = None,
    device: str = "cpu",
    aggregator: Aggregator | None = None,
    adversary: Adversary | None = None,
) -> World:
    """Run a method on a small world. With `folder`, everything is recorded there.

    `workers` is a number of processes, "batched" for stacked clients, or "measured" for as many as are fastest.
    A method for adapters trains those of `adapted` by default, all others TinyNet.
    """
    d = d or data()
    if make is None:
        make = partial(adapted, method.card.folds_adapters) if method.card.trained is Kind.ADAPTER else TinyNet
    streams = Streams(seed)
    index = index if index is not None else parts(d)
    spare = np.setdiff1d(np.arange(len(d.train)), np.concatenate(index))
    if time_model is None and method.card.timed:
        time_model = Counted().time_model(make(), d.shape, len(index), streams)
    holdings = Holdings(d, index, streams, spare, time_model)
    start = initial or state_of(initialise(make, streams))
    recorder = metrics = ledger = checkpoints = None
    if folder is not None:
        recorder = Recorder(folder / "artifacts")
        metrics, ledger = Log(folder / "metrics.jsonl"), Log(folder / "ledger.jsonl")
        logs = {"manifest": recorder.manifest, "metrics": metrics, "ledger": ledger}
        checkpoints = Checkpoints(folder / "checkpoint", logs, recorder.provenance)
    wire = Wire(method.card, streams, protections, recorder, ledger)
    compromise = (
        Compromise(adversary, choose_compromised_clients(adversary, len(index), streams))
        if adversary
        else Compromise()
    )
    private = next((t for p in protections if (t := p.training())), None)
    site = partial(build_site, method, holdings, make, device, private, compromise)
    width = None if workers == "measured" else WIDTH
    kind = Batched(site, width) if isinstance(workers, str) else worker_kinds.start(workers, site)
    with kind as pool:
        federation = Federation(
            holdings=holdings,
            initial=start,
            availability=Scripted(script),
            wire=wire,
            workers=pool,
            metrics=metrics,
            checkpoints=checkpoints,
            empty_round=empty_round,  # type: ignore[arg-type]
            failures=failures or FailureConfig(reply_loss=reply_loss),
            progress=partial(_stop, stop_after),
            aggregator=aggregator or mean(),
            compromise=compromise,
        )
        leave_uploads(method, federation)
        model = method.run(federation)
    for log in (metrics, ledger, recorder and recorder.manifest):
        if log:
            log.close()
    artifacts = read(folder / "artifacts") if folder is not None else []
    return World(model, federation.history, artifacts, start)


def as_delivered(deliveries: Iterable[Delivery], rule: Aggregator | None = None) -> Deliveries:
    """What a server gets in a round, for tests that call it directly."""
    return Deliveries(deliveries, Averages(rule or mean(), 0, Streams(5)))


class Watched:
    """A method and what it held when it had been opened: its settings, and the names of the model's arrays."""

    def __init__(self, cls: type[Any], config: Any) -> None:
        seen = self._seen = list[bytes]()

        class Opened(cls):  # type: ignore[misc]
            def open(self, federation: Federation) -> None:
                super().open(federation)
                seen.append(pickle.dumps(vars(self)))

        self.method: Any = Opened(config)

    def changed(self) -> bool:
        """Whether it holds anything else now; asked after rounds."""
        assert self._seen
        return {pickle.dumps(vars(self.method))} != set(self._seen)


class Stopped(Exception):
    pass


def _stop(after: int | None, phase: str, done: int, total: int) -> None:
    if after is not None and done > after:
        raise Stopped


def same(a: World | State, b: World | State) -> bool:
    """Every array equal, bit for bit."""
    a, b = pick_arrays(a), pick_arrays(b)
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def close(a: World | State, b: World | State, tolerance: float = 1e-6) -> bool:
    a, b = pick_arrays(a), pick_arrays(b)
    return a.keys() == b.keys() and all(torch.allclose(a[k], b[k], rtol=0, atol=tolerance) for k in a)


def pick_arrays(of: World | State) -> State:
    """The model, or where clients keep theirs, how well they and the server did in the last round."""
    if not isinstance(of, World) or of.model:
        return of.model if isinstance(of, World) else of
    last = {k: v for k, v in of.history[-1].items() if k in ("train_loss", "accuracy", "loss")}
    return {k: torch.tensor(v, dtype=torch.float64).nan_to_num() for k, v in last.items()}
