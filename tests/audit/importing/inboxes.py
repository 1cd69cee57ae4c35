"""Inboxes as other people's frameworks leave them, written from docs/artifact-format.md without our recorders.

A small federation is trained by plain loops; then `INBOXES[name].write(folder)` writes what crossed its wire to
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
from torch import nn

from tests.attacks.world import digits as images_of_digits
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
    x, y = images_of_digits()
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
    lr: float = 0.1,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    smallest: int = 1,
) -> Upload:
    """Local training; the model that was sent is pulled at by `proximal`, as in FedProx.

    Batches of fewer than `smallest` are left out.
    """
    torch.manual_seed(seed)
    net, x, y = make(), torch.from_numpy(data[0]), torch.from_numpy(data[1]).long()
    net.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    anchor = [p.detach().clone() for p in net.parameters()]
    steps = optimiser(net.parameters(), lr=lr)
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(net.eval()(x), y))
    net.train()
    for _ in range(epochs):
        for rows in (r for r in torch.randperm(len(y)).split(10) if len(r) >= smallest):
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


@cache
def standard(make: Callable[[], nn.Module], clients: int = CLIENTS) -> tuple[list[Round], State]:
    """FedAvg of all clients in all rounds."""
    return federate(make, digits(clients)[0])


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


@inbox("page: FedAvg, no optional key, no counts")
def _bare(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, serve=lambda b, u: average(b, u, [1.0] * len(u)))
    record(folder, rounds, final, up=lambda _, u: {"local_model": u.state})
    record_truth(folder, parts, own)


@inbox("page: BatchNorm, integer counters", model="nets:Normed")
def _integer_counters(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Normed)
    record(folder, rounds, final)
    record_truth(folder, parts, own)


def float_counters(state: State, kind: Any = np.float64) -> State:
    return {n: v.astype(kind) if v.dtype.kind == "i" else v for n, v in state.items()}


@inbox("page: BatchNorm, the server's mean makes float64 counters", model="nets:Normed")
def _float_counters(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Normed)
    down = iter([rounds[0].before, *(float_counters(r.before) for r in rounds[1:]), float_counters(final)])
    record(folder, rounds, final, down=lambda _: {"global_model": next(down)})
    record_truth(folder, parts, own)


@inbox("page: BatchNorm, changes with float32 counters", model="nets:Normed")
def _float_changes(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Normed)

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
    rounds, final = standard(nets.Mlp)
    up = lambda _, u: {"local_model": numbered(u.state), "num_examples": {"count": np.int64(u.examples)}}  # noqa: E731
    record(folder, rounds, final, up=up, down=lambda s: {"global_model": numbered(s)})
    record_truth(folder, parts, own)


@inbox("page: FedAdam")
def _adam(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, serve=FedAdam())
    record(folder, rounds, final, nodes=[f"hospital-{k}" for k in range(CLIENTS)])
    record_truth(folder, parts, own, [f"hospital-{k}" for k in range(CLIENTS)])


@inbox("page: q-FedAvg, losses sent")
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


@inbox("page: one client", has_labels=False)
def _one_client(folder: Path) -> None:
    parts, own = digits(1)
    rounds, final = standard(nets.Mlp, 1)
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


# What frameworks send besides


def counted(state: State, examples: int, kind: str = "local_model") -> dict[str, Mapping[str, Any]]:
    return {kind: state, "num_examples": {"count": np.int64(examples)}}


def change(before: State, u: Upload) -> State:
    return {n: (v - before[n]).astype(v.dtype) for n, v in u.state.items()}


def inbox_of(
    name: str,
    make: Callable[[], nn.Module] = nets.Mlp,
    *,
    up: Callable[[State, Upload], Mapping[str, Mapping[str, Any]]] = lambda _, u: counted(u.state, u.examples),
    down: Callable[[State], Mapping[str, Mapping[str, Any]]] = lambda state: {"global_model": state},
    nodes: Sequence[str] = (),
    cut: int = ROUNDS,
    is_final: bool = True,
    training: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """An inbox of FedAvg, or of other `training`, with messages of its own."""

    def write(folder: Path) -> None:
        parts, own = digits()
        rounds, final = federate(make, parts, **training) if training else standard(make)
        record(folder, rounds[:cut], final if is_final else None, up=up, down=down, nodes=nodes)
        if options.get("has_truth", True):
            record_truth(folder, parts, own, nodes)

    options = {"model": f"nets:{make.__name__}"} | options
    INBOXES[name] = Inbox(write, **options)


def both(rename: Callable[[State], State]) -> dict[str, Any]:
    """Models under other names, both ways."""
    return {
        "up": lambda _, u: counted(rename(u.state), u.examples),
        "down": lambda state: {"global_model": rename(state)},
    }


def prefixed(prefix: str) -> Callable[[State], State]:
    return lambda state: {f"{prefix}{n}": v for n, v in state.items()}


def typed(kind: Any) -> Callable[[State], State]:
    return lambda state: {n: v.astype(kind) if v.dtype.kind == "f" else v for n, v in state.items()}


def only(*names: str) -> Callable[[State], State]:
    return lambda state: {n: v for n, v in state.items() if n.startswith(names)}


def without(*names: str) -> Callable[[State], State]:
    return lambda state: {n: v for n, v in state.items() if not n.endswith(names)}


NODES = [f"{8372907206053482155 + 7 * k}" for k in range(CLIENTS)]


def losses(_: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
    return {**counted(u.state, u.examples), "local_loss": {"loss": np.float32(u.loss)}}


class FedAdagrad(FedAdam):
    """Squares add up."""

    def __call__(self, before: State, uploads: Sequence[Upload]) -> State:
        mean, after = average(before, uploads), {}
        for n, value in before.items():
            self.v[n] = self.v.get(n, 0) + (mean[n] - value) ** 2
            after[n] = (value + self.rate * (mean[n] - value) / (np.sqrt(self.v[n]) + 1e-3)).astype(value.dtype)
        return after


class FedAdamNormed(FedAdam):
    """FedAdam over every array of the state, counters and statistics too, as Flower's strategy does."""

    def __call__(self, before: State, uploads: Sequence[Upload]) -> State:
        after = super().__call__({n: v.astype(np.float64) for n, v in before.items()}, uploads)
        return {n: np.abs(v) if n.endswith("var") else v for n, v in after.items()}


inbox_of("Flower: FedAvg, node ids", nodes=NODES)
inbox_of("Flower: FedProx", nodes=NODES, training={"proximal": 1.0}, up=losses)
inbox_of("Flower: FedAdagrad", nodes=NODES, training={"serve": FedAdagrad()})
inbox_of(
    "Flower: FedAdam over counters and statistics",
    nets.Normed,
    nodes=NODES,
    training={"serve": FedAdamNormed()},
    has_labels=False,
)
inbox_of("Flower: FedAvg weighs everybody alike", training={"serve": lambda b, u: average(b, u, [1.0] * len(u))})
inbox_of("legacy: arrays by position, BatchNorm", nets.Normed, **both(numbered))
inbox_of(
    "legacy: arrays by position, no counters", nets.Normed, **both(lambda s: numbered(without("tracked")(s)))
)
inbox_of(
    "legacy: parameters by position, no statistics",
    nets.Normed,
    **both(lambda s: numbered(without("tracked", "mean", "var")(s))),
    refused="numbers its arrays by position",
)
inbox_of(
    "legacy: arrays by position, in another order",
    **both(lambda s: numbered(dict(reversed(s.items())))),
    refused="numbers its arrays by position: array 0 is",
)
inbox_of("legacy: arrays by position, network not stated", **both(numbered), model="", has_labels=False)
inbox_of("wrapper: names below module.", **both(prefixed("module.")))
inbox_of("wrapper: names below _orig_mod.net., BatchNorm", nets.Normed, **both(prefixed("_orig_mod.net.")))
inbox_of(
    "names that were changed",
    **both(lambda s: {n.replace("hidden", "trunk"): v for n, v in s.items()}),
    refused="unknown to it",
)
inbox_of("half precision, both ways", **both(typed(np.float16)))
inbox_of("double precision, both ways", **both(typed(np.float64)))
inbox_of("uploads in half precision", up=lambda _, u: counted(typed(np.float16)(u.state), u.examples))
inbox_of(
    "uploads of the last layer alone",
    up=lambda _, u: counted(only("head")(u.state), u.examples),
    training={"serve": lambda b, u: b | only("head")(average(b, u))},
)
inbox_of("a frozen base that is never sent", **both(only("head")), refused="lacks 'hidden.weight'")
inbox_of("a frozen base that is never sent, network not stated", **both(only("head")), model="", has_labels=False)
inbox_of(
    "statistics of BatchNorm stay at clients",
    nets.Normed,
    **both(without("tracked", "mean", "var")),
    refused="lacks",
)
SHAPE = {"examples": {"classes": [str(c) for c in range(10)], "shape": [1, 8, 8]}}
inbox_of("no truth", has_truth=False, has_labels=False, states=SHAPE)
inbox_of(
    "no truth and no counts",
    up=lambda _, u: {"local_model": u.state},
    has_truth=False,
    has_labels=False,
    states=SHAPE,
)
inbox_of("one round, no last model", cut=1, is_final=False)
inbox_of("changes", up=lambda b, u: counted(change(b, u), u.examples, "model_delta"))
inbox_of(
    "changes under the name of models",
    up=lambda b, u: counted(change(b, u), u.examples),
    refused="they look like model_delta",
)
inbox_of(
    "models under the name of changes",
    up=lambda _, u: counted(u.state, u.examples, "model_delta"),
    training={"lr": 0.02},
    refused="they look like local_model",
)
inbox_of(
    "counts as arrays of one number",
    up=lambda _, u: {"local_model": u.state, "num_examples": {"count": np.array([u.examples])}},
)
inbox_of(
    "counts as floating-point numbers",
    up=lambda _, u: {"local_model": u.state, "num_examples": {"count": np.float32(u.examples)}},
)
inbox_of(
    "counts under another name",
    up=lambda _, u: {"local_model": u.state, "num_examples": {"n": np.int64(u.examples)}},
    refused="has no array 'count'",
)
inbox_of(
    "a kind of its own",
    up=lambda _, u: {"weights": u.state},
    refused="'weights' is no kind: one of your own is WHOSE:ROLE",
)
inbox_of("clients that did not train", training={"epochs": 0}, has_labels=False)
inbox_of(
    "FedSGD: gradients",
    up=lambda b, u: {"gradient": {n: -v for n, v in change(b, u).items()}, "num_examples": {"count": u.examples}},
    has_labels=False,
)


def write_tasks(folder: Path, *, scaffold: bool = False, filters: Sequence[str] = ()) -> None:
    """NVFlare: every task and result is a message of its own; changes, weighted by steps."""
    parts, own = digits()
    sites = [f"site-{k + 1}" for k in range(CLIENTS)]

    def serve(before: State, uploads: Sequence[Upload]) -> State:
        return average(before, uploads, [steps(u) for u in uploads])

    rounds, final = federate(nets.Mlp, parts, serve=serve)
    for k, site in enumerate(sites):
        write_line(folder / "inbox", {"party": f"client/{k}", "node": site})
    control = {n: np.zeros_like(v) for n, v in final.items()}
    more = {"filters": list(filters)} if filters else {}
    for t, one in enumerate(rounds):
        for u in one.uploads:
            task = {"global_model": one.before} | ({"control_global": control} if scaffold else {})
            to = f"client/{u.client}"
            write_message(
                folder / "inbox", f"t{t}-{u.client}", t, "downlink", "server", [to], task, receivers=[to]
            )
            moved = change(one.before, u)
            result: dict[str, Any] = {"model_delta": moved, "num_steps": {"steps": np.int64(steps(u))}}
            if scaffold:
                result["control_delta"] = {n: (-v / steps(u)).astype(v.dtype) for n, v in moved.items()}
            write_message(folder / "inbox", f"r{t}-{u.client}", t, "uplink", to, ["server"], result, **more)
    write_message(folder / "inbox", "last", ROUNDS, "downlink", "server", ["client"], {"global_model": final})
    record_truth(folder, parts, own, sites)


def steps(u: Upload) -> int:
    return 3 * -(-u.examples // 10)


INBOXES["NVFlare: ScatterAndGather"] = Inbox(write_tasks)
INBOXES["NVFlare: ScatterAndGather with a filter"] = Inbox(lambda f: write_tasks(f, filters=["ExcludeVars"]))
INBOXES["NVFlare: Scaffold"] = Inbox(lambda f: write_tasks(f, scaffold=True))


@inbox("Flower: models are sent to be evaluated, and losses come back")
def _evaluated(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    for t in range(ROUNDS):
        for k in range(2):
            write_message(
                folder / "inbox",
                f"e{t}-{k}",
                t,
                "uplink",
                f"client/{k}",
                ["server"],
                {"local_loss": {"loss": np.float32(0.5)}},
                metrics={"accuracy": 0.5},
            )
    record_truth(folder, parts, own)


@inbox("evaluation alone: no client's update was recorded", has_labels=False)
def _evaluation_alone(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final, up=lambda _, u: {"local_loss": {"loss": np.float32(u.loss)}})
    record_truth(folder, parts, own)


@inbox("checkpoints alone", has_labels=False)
def _checkpoints(folder: Path) -> None:
    _, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, [Round(r.before, []) for r in rounds], final)
    write_truth(folder, {"own": own})


@inbox("prototypes over rounds, with those of all", model="", has_labels=False)
def _prototype_rounds(folder: Path) -> None:
    parts, own = digits()
    every = {"classes": np.arange(10), "features": np.zeros((10, 64), np.float32)}
    for t in range(2):
        write_message(
            folder / "inbox", f"s{t}", t, "downlink", "server", ["client"], {"global_prototypes": every}
        )
        for k, part in enumerate(parts):
            sent = {"local_prototypes": prototypes(part)["local_prototypes"]}
            write_message(folder / "inbox", f"c{t}-{k}", t, "uplink", f"client/{k}", ["server"], sent)
    record_truth(folder, parts, own)


@inbox("legacy: every message in round 0", refused="in round 0 client/0 was sent")
def _round_zero(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    for t, one in enumerate([*rounds, Round(final, [])]):
        write_message(
            folder / "inbox", f"m{t}", 0, "downlink", "server", ["client"], {"global_model": one.before}
        )
        for u in one.uploads:
            kinds = counted(u.state, u.examples)
            write_message(
                folder / "inbox", f"m{t}-{u.client}", 0, "uplink", f"client/{u.client}", ["server"], kinds
            )
    record_truth(folder, parts, own)


@inbox("rounds from 1, clients' numbers with gaps")
def _gaps(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    for t, one in enumerate([*rounds, Round(final, [])], start=1):
        kinds: Mapping[str, Any] = {"global_model": one.before}
        write_message(folder / "inbox", f"m{t}", t, "downlink", "server", ["client"], kinds)
        for u in one.uploads:
            sender = f"client/{3 * u.client + 2}"
            write_message(
                folder / "inbox",
                f"m{t}-{u.client}",
                t,
                "uplink",
                sender,
                ["server"],
                counted(u.state, u.examples),
            )
    record_truth(folder, parts, own, [f"client-{3 * k + 2}" for k in range(CLIENTS)])


@inbox("a client whose training diverged")
def _diverged(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)

    def up(_: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
        state = u.state if u.client else {n: v * np.float32("nan") for n, v in u.state.items()}
        return counted(state, u.examples)

    record(folder, rounds, final, up=up)
    record_truth(folder, parts, own)


@inbox("a line without its readers", refused="'seen_by' is missing")
def _no_readers(folder: Path) -> None:
    _bare(folder)
    path = folder / "inbox" / "manifest.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "seen_by"}) + "\n" for row in rows))


@inbox("a table that was standardised", model="nets:Table", has_labels=False)
def _standardised(folder: Path) -> None:
    parts, own = table()
    rounds, final = federate(nets.Table, parts)
    record(folder, rounds, final)
    record_truth(folder, [(4 * x - 2, y) for x, y in parts], own)
