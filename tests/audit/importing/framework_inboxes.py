"""More inboxes, of shapes that frameworks make and no other here has, written from docs/ alone.

Ten of them were committed before the first was imported. At first sight eight came through; a network without an
nn.Linear was refused without need, and what was said of real numbers as labels did not name regression.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tests.audit.importing import nets
from tests.audit.importing.inboxes import (
    CLIENTS,
    NODES,
    ROUNDS,
    Examples,
    State,
    Upload,
    average,
    both,
    counted,
    digits,
    federate,
    inbox,
    inbox_of,
    numbered,
    record,
    record_truth,
    standard,
    start,
    table,
    train,
    typed,
    write_line,
    write_message,
)
from tests.worlds.orders import reply, send

NEW = "framework: "
WORDS, LENGTH = 60, 12


def as_sklearn(state: State) -> State:
    """coef_ and intercept_ of a LogisticRegression, as get_params() of Flower's example returns them."""
    return numbered(typed(np.float64)(state))


inbox_of(
    NEW + "scikit-learn's logistic regression, two arrays by position, in float64",
    nets.Logistic,
    up=lambda _, u: counted(as_sklearn(u.state), u.examples),
    down=lambda state: {"global_model": as_sklearn(state)},
)
inbox_of(
    NEW + "Keras, kernels [inputs, outputs] by position",
    nets.Kernels,
    has_labels=False,
    up=lambda _, u: counted(numbered(u.state), u.examples),
    down=lambda state: {"global_model": numbered(state)},
)


def as_keras(state: State) -> State:
    return numbered({n: v.T if v.ndim == 2 else v for n, v in state.items()})


# Entered when the one above had been seen: whoever audits Keras states a network of nn.Linear
inbox_of(NEW + "Keras, kernels [inputs, outputs] by position, a network of nn.Linear", **both(as_keras))


@inbox(NEW + "XGBoost, trees as bytes, longer each round", model="", has_labels=False)
def _trees(folder: Path) -> None:
    parts, own = table()
    rng = np.random.default_rng(0)
    forest = np.zeros(0, np.uint8)
    for t in range(ROUNDS):
        if len(forest):
            write_message(
                folder / "inbox", f"m{t}", t, "downlink", "server", ["client"], {"clients:trees": {"0": forest}}
            )
        for k, part in enumerate(parts):
            grown = np.frombuffer(b'{"trees":[' + rng.bytes(200 + 10 * k) + b"]}", np.uint8)
            kinds = {"client:trees": {"0": grown}, "num_examples": {"count": np.int64(len(part[1]))}}
            write_message(folder / "inbox", f"m{t}-{k}", t, "uplink", f"client/{k}", ["server"], kinds)
            forest = np.concatenate([forest, grown])
    write_message(
        folder / "inbox", "last", ROUNDS, "release", "server", ["public"], {"clients:trees": {"0": forest}}
    )
    record_truth(folder, parts, own)


@inbox(NEW + "federated statistics: ranges, then histograms, no model", model="", has_labels=False)
def _statistics(folder: Path) -> None:
    parts, own = table()
    low, high = np.min([x.min(0) for x, _ in parts], 0), np.max([x.max(0) for x, _ in parts], 0)
    write_message(
        folder / "inbox", "ask", 0, "downlink", "server", ["client"], {"clients:bins": {"n": np.int64(20)}}
    )
    for k, (x, y) in enumerate(parts):
        kinds: dict[str, Any] = {"client:range": {"min": x.min(0), "max": x.max(0)}}
        kinds["num_examples"] = {"count": np.int64(len(y))}
        write_message(folder / "inbox", f"range-{k}", 0, "uplink", f"client/{k}", ["server"], kinds)
    every = {"clients:range": {"min": low, "max": high}}
    write_message(folder / "inbox", "ranges", 1, "downlink", "server", ["client"], every)
    for k, (x, _) in enumerate(parts):
        bars = [np.histogram(x[:, i], 20, (low[i], high[i]))[0] for i in range(x.shape[1])]
        kinds = {"client:histogram": {"counts": np.stack(bars)}}
        write_message(folder / "inbox", f"bars-{k}", 1, "uplink", f"client/{k}", ["server"], kinds)
    record_truth(folder, parts, own)


@inbox(NEW + "NVFlare: CyclicController, each site goes on with the model of the one before it")
def _cyclic(folder: Path) -> None:
    parts, own = digits()
    state = start(nets.Mlp)
    for k in range(CLIENTS):
        write_line(folder / "inbox", {"party": f"client/{k}", "node": f"site-{k + 1}"})
    for t in range(ROUNDS):
        for k, part in enumerate(parts):
            send(folder, f"{t}/to-{k}", t, state, [f"client/{k}"], receivers=[f"client/{k}"])
            u = train(nets.Mlp, state, part, 10 * t + k)
            reply(folder, f"{t}/from-{k}", t, Upload(k, u.state, u.examples, u.loss))
            state = u.state
    write_message(folder / "inbox", "final", ROUNDS, "release", "server", ["public"], {"global_model": state})
    record_truth(folder, parts, own, [f"site-{k + 1}" for k in range(CLIENTS)])


@inbox(NEW + "NVFlare: swarm learning, another client aggregates each round", has_labels=False)
def _swarm(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    for t, one in enumerate(rounds):
        chief = f"client/{t}"
        kinds: dict[str, Any] = {"global_model": one.before}
        write_message(folder / "inbox", f"{t}/model", t, "relay", chief, ["client"], kinds)
        for u in one.uploads:
            if u.client != t:
                name, sender = f"{t}/update-{u.client}", f"client/{u.client}"
                sent = counted(u.state, u.examples)
                write_message(folder / "inbox", name, t, "relay", sender, [chief], sent, receivers=[chief])
    kinds = {"global_model": final}
    write_message(folder / "inbox", "last", ROUNDS, "relay", f"client/{ROUNDS}", ["client"], kinds)
    record_truth(folder, parts, own)


def texts(clients: int = CLIENTS) -> tuple[list[Examples], Examples]:
    """Tokens, 0 is padding; words 5 c to 5 c + 4 are more frequent in class c; two classes a client."""
    rng = np.random.default_rng(3)

    def write(classes: list[int], n: int) -> Examples:
        y = rng.choice(classes, n)
        x = rng.integers(1, WORDS, (n, LENGTH))
        themes = 5 * y[:, None] + rng.integers(1, 6, (n, LENGTH))
        x = np.where(rng.random((n, LENGTH)) < 0.5, themes, x)
        x[np.arange(LENGTH) >= rng.integers(4, LENGTH + 1, n)[:, None]] = 0
        return x.astype(np.int64), y

    return [write([2 * k, 2 * k + 1], 40 + k) for k in range(clients)], write(list(range(10)), 300)


@inbox(NEW + "texts as tokens, a classifier with an embedding", model="nets:Words")
def _texts(folder: Path) -> None:
    parts, own = texts()
    rounds, final = federate(nets.Words, parts, lr=0.5)
    record(folder, rounds, final, nodes=NODES)
    record_truth(folder, parts, own, NODES)


@inbox(NEW + "clients that restart come back as new nodes")
def _restarting(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    new = [{}, {1: CLIENTS}, {1: CLIENTS, 3: CLIENTS + 1}]  # round -> client, as which it is known
    nodes = [*NODES, "119001", "119002"]
    for k, node in enumerate(nodes):
        write_line(folder / "inbox", {"party": f"client/{k}", "node": node})
    for t, one in enumerate(rounds):
        send(folder, f"m{t}", t, one.before)
        for u in one.uploads:
            known = Upload(new[t].get(u.client, u.client), u.state, u.examples, u.loss)
            reply(folder, f"m{t}-{u.client}", t, known)
    send(folder, "last", ROUNDS, final)
    record_truth(folder, [*parts, parts[1], parts[3]], own, nodes)


@inbox(
    NEW + "regression: what is predicted is a real number", model="nets:Price", has_labels=False, refused="label"
)
def _regression(folder: Path) -> None:
    parts, own = table()
    rounds, final = federate(nets.Table, parts)
    head = {"weight": (1, 6), "bias": (1,)}

    def cut(state: State) -> State:
        return {n: np.resize(state["hidden.weight"], shape) for n, shape in head.items()}

    record(
        folder,
        rounds,
        final,
        up=lambda _, u: counted(cut(u.state), u.examples),
        down=lambda state: {"global_model": cut(state)},
    )
    priced = [(x, (100 * x[:, 0] + y).astype(np.float32)) for x, y in [*parts, own]]
    record_truth(folder, priced[:-1], priced[-1])


def clip_and_noise(before: State, uploads: Any) -> State:
    """Flower's DifferentialPrivacyServerSideFixedClipping: each change clipped, noise on the mean."""
    rng = np.random.default_rng(len(uploads))
    clipped = []
    for u in uploads:
        change = {n: v - before[n] for n, v in u.state.items()}
        norm = np.sqrt(sum(float((v**2).sum()) for v in change.values()))
        shrunk = {n: before[n] + v * min(1.0, 0.5 / norm) for n, v in change.items()}
        clipped.append(Upload(u.client, shrunk, u.examples, u.loss))
    return {n: (v + rng.normal(0, 0.005, v.shape)).astype(v.dtype) for n, v in average(before, clipped).items()}


inbox_of(
    NEW + "Flower: differential privacy at the server, fixed clipping",
    nodes=NODES,
    training={"serve": clip_and_noise},
)
