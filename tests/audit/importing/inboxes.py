"""Inboxes as other people's frameworks leave them, written from docs/artifact-format.md without a recorder of ours.

A small federation is trained here by plain loops; then `INBOXES[name].write(folder)` writes what crossed its wire to
folder/inbox, and what its clients held to folder/truth.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from sklearn.datasets import load_digits
from torch import nn

from tests.audit.importing import nets

State = dict[str, np.ndarray]
Examples = tuple[np.ndarray, np.ndarray]
CLIENTS, HELD, ROUNDS = 5, 40, 3


@dataclass(frozen=True)
class Upload:
    """What one client trained in one round."""

    client: int
    state: State
    examples: int
    loss: float  # of the model that it was sent


@dataclass(frozen=True)
class Round:
    before: State
    uploads: Sequence[Upload]


@dataclass(frozen=True)
class Inbox:
    """One inbox: how it is written, what its operator states, and how its import ends."""

    write: Callable[[Path], None]
    model: str = "nets:Mlp"
    states: Mapping[str, Any] = field(default_factory=dict)  # of the subject, besides what `init` writes
    refused: str = ""  # a phrase of the sentence that the import ends in; empty: it imports
    has_truth: bool = True
    has_labels: bool = True  # whether which classes a client holds can be read from its uploads


INBOXES: dict[str, Inbox] = {}


def inbox(name: str, **options: Any) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Enter a function that writes an inbox."""

    def enter(write: Callable[[Path], None]) -> Callable[[Path], None]:
        INBOXES[name] = Inbox(write, **options)
        return write

    return enter


def write_message(
    folder: Path,
    name: str,
    round: int,
    channel: str,
    sender: str,
    seen_by: Sequence[str],
    kinds: Mapping[str, Mapping[str, Any]],
    **more: Any,
) -> None:
    """The least writer of the page, with optional keys in `more`."""
    arrays = {f"{k}/{n}": np.asarray(a, order="C") for k, part in kinds.items() for n, a in part.items()}
    data, path = save(arrays), folder / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    line = {"message": name, "round": round, "channel": channel, "sender": sender, "seen_by": list(seen_by)}
    line |= {"kinds": list(kinds), "sha256": hashlib.sha256(data).hexdigest()}
    write_line(folder, line | more)


def write_line(folder: Path, line: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "manifest.jsonl", "a") as manifest:
        manifest.write(json.dumps(line) + "\n")


def write_truth(folder: Path, parts: Mapping[str, Examples]) -> None:
    (folder / "truth").mkdir(parents=True, exist_ok=True)
    for name, (x, y) in parts.items():
        np.savez(folder / "truth" / f"{name}.npz", x=x, y=y)


# What is trained


@cache
def digits(clients: int = CLIENTS) -> tuple[tuple[Examples, ...], Examples]:
    """Two classes a client, and 300 examples that nobody holds; sizes differ from client to client."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    own, rest = (x[:300], y[:300]), (x[300:], y[300:])
    parts = []
    for k in range(clients):
        rows = np.concatenate([np.flatnonzero(rest[1] == (2 * k + i) % 10)[: HELD // 2 + k] for i in range(2)])
        parts.append((rest[0][rows], rest[1][rows]))
    return tuple(parts), own


@cache
def table(clients: int = CLIENTS) -> tuple[tuple[Examples, ...], Examples]:
    """Three classes of six columns, each scaled to 0..1 by its smallest and largest value."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 60 * (clients + 1))
    x = rng.normal(size=(len(y), 6)) * [1, 10, 0.1, 5, 1, 1] + y[:, None] * [2, 10, 0.1, 0, 0, 1]
    x = ((x - x.min(0)) / (x.max(0) - x.min(0))).astype(np.float32)
    parts = [(x[60 * k : 60 * k + 50 + k], y[60 * k : 60 * k + 50 + k]) for k in range(clients)]
    return tuple(parts), (x[60 * clients :], y[60 * clients :])


def to_state(net: nn.Module) -> State:
    return {name: value.numpy().copy() for name, value in net.state_dict().items()}


def start(make: Callable[[], nn.Module]) -> State:
    torch.manual_seed(0)
    return to_state(make())


def train(
    make: Callable[[], nn.Module],
    state: State,
    data: Examples,
    seed: int,
    *,
    proximal: float = 0.0,
    epochs: int = 3,
) -> Upload:
    """Local training; the model that was sent is pulled at by `proximal`, as in FedProx."""
    torch.manual_seed(seed)
    net, x, y = make(), torch.from_numpy(data[0]), torch.from_numpy(data[1]).long()
    net.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    anchor = [p.detach().clone() for p in net.parameters()]
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(net.eval()(x), y))
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(10):
            pull = sum(((p - a) ** 2).sum() for p, a in zip(net.parameters(), anchor, strict=True))
            value = nn.functional.cross_entropy(net(x[rows]), y[rows]) + 0.5 * proximal * pull
            steps.zero_grad()
            value.backward()
            steps.step()
    return Upload(-1, to_state(net), len(y), loss)


Serve = Callable[[State, Sequence[Upload]], State]
Heard = Callable[[int], Sequence[int]]


def average(before: State, uploads: Sequence[Upload], weights: Sequence[float] | None = None) -> State:
    """Mean by numbers of examples, as FedAvg; every array keeps its type."""
    w = np.array([u.examples for u in uploads] if weights is None else weights, float)
    return {
        n: np.asarray(sum(wi * u.state[n] for wi, u in zip(w / w.sum(), uploads, strict=True))).astype(v.dtype)
        for n, v in before.items()
    }


class FedAdam:
    """The server of Reddi et al. (2021)."""

    def __init__(self, rate: float = 0.05) -> None:
        self.rate, self.m, self.v = rate, dict[str, Any](), dict[str, Any]()

    def __call__(self, before: State, uploads: Sequence[Upload]) -> State:
        mean, after = average(before, uploads), {}
        for n, value in before.items():
            change = mean[n] - value
            self.m[n] = 0.9 * self.m.get(n, 0) + 0.1 * change
            self.v[n] = 0.99 * self.v.get(n, 0) + 0.01 * change**2
            after[n] = (value + self.rate * self.m[n] / (np.sqrt(self.v[n]) + 1e-3)).astype(value.dtype)
        return after


def q_fair(before: State, uploads: Sequence[Upload], q: float = 0.5, rate: float = 0.1) -> State:
    """The server of q-FedAvg (Li et al., 2020)."""
    after, least = {}, 1 / rate
    changes = [{n: least * (v - u.state[n]) for n, v in before.items()} for u in uploads]
    norms = [sum(float((c**2).sum()) for c in change.values()) for change in changes]
    h = sum(q * u.loss ** (q - 1) * s + least * u.loss**q for u, s in zip(uploads, norms, strict=True))
    for n, v in before.items():
        step = sum(u.loss**q * c[n] for u, c in zip(uploads, changes, strict=True)) / h
        after[n] = (v - step).astype(v.dtype)
    return after


def federate(
    make: Callable[[], nn.Module],
    parts: Sequence[Examples],
    *,
    serve: Serve = average,
    rounds: int = ROUNDS,
    heard: Heard | None = None,
    **training: Any,
) -> tuple[list[Round], State]:
    """Every round, and the last model."""
    state, done = start(make), []
    for t in range(rounds):
        uploads = []
        for i, k in enumerate(heard(t) if heard else range(len(parts))):
            upload = train(make, state, parts[k], 1000 * t + 10 * i + k, **training)
            uploads.append(Upload(k, upload.state, upload.examples, upload.loss))
        done.append(Round(state, uploads))
        state = serve(state, uploads)
    return done, state


def record(
    folder: Path,
    rounds: Sequence[Round],
    final: State | None,
    *,
    up: Callable[[State, Upload], Mapping[str, Mapping[str, Any]]] = lambda before, u: {
        "local_model": u.state,
        "num_examples": {"count": np.int64(u.examples)},
    },
    down: Callable[[State], Mapping[str, Mapping[str, Any]]] = lambda state: {"global_model": state},
    nodes: Sequence[str] = (),
) -> None:
    """What crossed the wire: a broadcast and every upload of each round, then the last model."""
    for k, node in enumerate(nodes):
        write_line(folder / "inbox", {"party": f"client/{k}", "node": node})
    for t, one in enumerate(rounds):
        write_message(
            folder / "inbox", f"r{t}/server.downlink", t, "downlink", "server", ["client"], down(one.before)
        )
        for i, u in enumerate(one.uploads):
            name = f"r{t}/client-{u.client}.{i}.uplink"
            write_message(
                folder / "inbox", name, t, "uplink", f"client/{u.client}", ["server"], up(one.before, u)
            )
    if final is not None:
        t = len(rounds)
        write_message(folder / "inbox", f"r{t}/server.downlink", t, "downlink", "server", ["client"], down(final))


def record_truth(folder: Path, parts: Sequence[Examples], own: Examples, names: Sequence[str] = ()) -> None:
    named = names or [f"client-{k}" for k in range(len(parts))]
    write_truth(folder, dict(zip(named, parts, strict=True)) | {"own": own})


# Twelve that were written from the pages before the first of them was imported


@inbox("page: the least writer as it is printed", model="", has_labels=False)
def _least(folder: Path) -> None:
    model = {"head.weight": np.zeros((10, 64), np.float32), "head.bias": np.zeros(10, np.float32)}
    write_message(
        folder / "inbox", "r00000/server.downlink", 0, "downlink", "server", ["client"], {"global_model": model}
    )
    parts, own = digits(2)
    for client, examples in enumerate([120, 45]):
        trained = {name: array + np.float32(0.1 * (client + 1)) for name, array in model.items()}
        kinds = {"local_model": trained, "num_examples": {"count": np.int64(examples)}}
        name = f"r00000/client-{client}.uplink"
        write_message(folder / "inbox", name, 0, "uplink", f"client/{client}", ["server"], kinds)
    held = [
        tuple(np.resize(a, (n, *a.shape[1:])) for a in part) for part, n in zip(parts, [120, 45], strict=True)
    ]
    record_truth(folder, held, own)


@inbox("page: FedAvg, no optional key, no counts", states={"aggregation": "uniform"})
def _bare(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, serve=lambda b, u: average(b, u, [1.0] * len(u)))
    record(folder, rounds, final, up=lambda _, u: {"local_model": u.state})
    record_truth(folder, parts, own)


@inbox("page: BatchNorm, integer counters", model="nets:Normed")
def _integer_counters(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Normed, parts)
    record(folder, rounds, final)
    record_truth(folder, parts, own)


def float_counters(state: State, kind: Any = np.float64) -> State:
    return {n: v.astype(kind) if v.dtype.kind == "i" else v for n, v in state.items()}


@inbox("page: BatchNorm, the server's mean makes float64 counters", model="nets:Normed")
def _float_counters(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Normed, parts)
    down = iter([rounds[0].before, *(float_counters(r.before) for r in rounds[1:]), float_counters(final)])
    record(folder, rounds, final, down=lambda _: {"global_model": next(down)})
    record_truth(folder, parts, own)


@inbox("page: BatchNorm, changes with float32 counters", model="nets:Normed")
def _float_changes(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Normed, parts)

    def up(before: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
        change = {n: (v - before[n]).astype(np.float32) for n, v in u.state.items()}
        return {"model_delta": change, "num_examples": {"count": np.int64(u.examples)}}

    record(folder, rounds, final, up=up)
    record_truth(folder, parts, own)


def numbered(state: State) -> State:
    """Names of a NumPyClient's list of arrays."""
    return {str(i): v for i, v in enumerate(state.values())}


@inbox("page: arrays named by their position, as a NumPyClient's")
def _numbered(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts)
    up = lambda _, u: {"local_model": numbered(u.state), "num_examples": {"count": np.int64(u.examples)}}  # noqa: E731
    record(folder, rounds, final, up=up, down=lambda s: {"global_model": numbered(s)})
    record_truth(folder, parts, own)


@inbox("page: FedAdam", states={"aggregation": "other"})
def _adam(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, serve=FedAdam())
    record(folder, rounds, final, nodes=[f"hospital-{k}" for k in range(CLIENTS)])
    record_truth(folder, parts, own, [f"hospital-{k}" for k in range(CLIENTS)])


@inbox("page: q-FedAvg, losses sent", states={"aggregation": "other"})
def _q_fair(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, serve=q_fair)
    up = lambda _, u: {  # noqa: E731
        "local_model": u.state,
        "num_examples": {"count": np.int64(u.examples)},
        "local_loss": {"loss": np.float32(u.loss)},
    }
    record(folder, rounds, final, up=up)
    record_truth(folder, parts, own)


def prototypes(part: Examples) -> Mapping[str, Mapping[str, Any]]:
    """Mean pixels of each class."""
    x, y = part[0].reshape(len(part[0]), -1), part[1]
    classes, counts = np.unique(y, return_counts=True)
    features = np.stack([x[y == c].mean(0) for c in classes]).astype(np.float32)
    return {
        "local_prototypes": {"classes": classes, "features": features},
        "proto_counts": {"classes": classes, "counts": counts},
    }


@inbox("page: prototypes alone", model="", has_labels=False)
def _prototypes(folder: Path) -> None:
    parts, own = digits()
    for k, part in enumerate(parts):
        write_message(folder / "inbox", f"client-{k}", 0, "uplink", f"client/{k}", ["server"], prototypes(part))
    record_truth(folder, parts, own)


@inbox("page: one client")
def _one_client(folder: Path) -> None:
    parts, own = digits(1)
    rounds, final = federate(nets.Mlp, parts)
    record(folder, rounds, final)
    record_truth(folder, parts, own)


@inbox("page: clients that come late, stay away and send twice")
def _late(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, heard=lambda t: [[0, 1], [0, 1, 1, 2], [2, 3, 4]][t])
    record(folder, rounds, final)
    record_truth(folder, parts, own)


@inbox("page: a table whose columns were scaled to 0..1", model="nets:Table", has_labels=False)
def _table(folder: Path) -> None:
    parts, own = table()
    rounds, final = federate(nets.Table, parts)
    record(folder, rounds, final)
    record_truth(folder, parts, own)
