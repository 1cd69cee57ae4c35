"""Ordinary federations whose messages come in other orders, to others, from others, or with other truths.

They were written from docs/ alone, before any was imported.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.audit.importing import nets
from tests.audit.importing.inboxes import (
    CLIENTS,
    INBOXES,
    ROUNDS,
    Round,
    State,
    Upload,
    average,
    counted,
    digits,
    federate,
    inbox,
    inbox_of,
    only,
    record,
    record_truth,
    standard,
    start,
    train,
    typed,
    write_line,
    write_message,
    write_truth,
)
from tests.worlds.federations import FEW, IMPORTS, NETS
from tests.worlds.world import World, recorded

NEW = "orders: "
NAMES = ["Klinikum München", "病院 2", "больница №3", "Hôpital d'Évry", "site 5 (test)"]


def send(folder: Path, name: str, round: int, state: State, to: Sequence[str] = ("client",), **more: Any) -> None:
    """A model, from the server."""
    kinds = {"global_model": state}
    write_message(folder / "inbox", name, round, "downlink", "server", to, kinds, **more)


def reply(folder: Path, name: str, round: int, u: Upload, **more: Any) -> None:
    """A client's model with its count."""
    kinds = counted(u.state, u.examples)
    write_message(folder / "inbox", name, round, "uplink", f"client/{u.client}", ["server"], kinds, **more)


@inbox(f"{NEW}the new model is sent to be evaluated in the round that made it")
def _evaluated_at_once(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    after = [r.before for r in rounds[1:]] + [final]
    for t, (one, new) in enumerate(zip(rounds, after, strict=True), start=1):
        send(folder, f"{t}/train", t, one.before)
        for u in one.uploads:
            reply(folder, f"{t}/train-{u.client}", t, u)
        send(folder, f"{t}/evaluate", t, new)
        for k in range(CLIENTS):
            loss = {"local_loss": {"loss": np.float64(0.4)}}
            write_message(folder / "inbox", f"{t}/evaluate-{k}", t, "uplink", f"client/{k}", ["server"], loss)
    record_truth(folder, parts, own)


@inbox(f"{NEW}one client a round, rounds 10, 20, 30, ...")
def _one_at_a_time(folder: Path) -> None:
    parts, own = digits()
    rounds, final = federate(nets.Mlp, parts, rounds=CLIENTS, heard=lambda t: [t])
    for t, one in enumerate(rounds):
        to = [f"client/{one.uploads[0].client}"]
        send(folder, f"m{t}", 10 * t + 10, one.before, to, receivers=to)
        reply(folder, f"u{t}", 10 * t + 10, one.uploads[0])
    send(folder, "last", 10 * CLIENTS + 10, final)
    record_truth(folder, parts, own)


@inbox(f"{NEW}a round without replies, then one of a single client")
def _silent(folder: Path) -> None:
    parts, own = digits()
    heard: list[list[int]] = [[0, 1, 2, 3, 4], [3], [4, 1, 2]]
    rounds, final = federate(nets.Mlp, parts, heard=lambda t: heard[t])
    silent = Round(rounds[1].before, [])
    record(folder, [rounds[0], silent, *rounds[1:]], final)
    record_truth(folder, parts, own)


@inbox(f"{NEW}uploads that arrived twice, bit for bit")
def _retransmitted(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    for t, one in enumerate(rounds):
        reply(folder, f"again/{t}", t, one.uploads[t])
    record_truth(folder, parts, own)


@inbox(f"{NEW}two clusters, each with a model of its own")
def _clusters(folder: Path) -> None:
    parts, own = digits()
    groups = [[0, 1], [2, 3, 4]]
    for g, members in enumerate(groups):
        rounds, final = federate(nets.Mlp, parts, heard=lambda _, m=members: m)  # type: ignore[misc]
        to = [f"client/{k}" for k in members]
        for t, one in enumerate(rounds):
            send(folder, f"g{g}/{t}", t, one.before, to, receivers=to)
            for u in one.uploads:
                kinds = counted(u.state, u.examples) | {"cluster_id": {"cluster": np.int64(g)}}
                write_message(
                    folder / "inbox", f"g{g}/{t}-{u.client}", t, "uplink", f"client/{u.client}", ["server"], kinds
                )
        send(folder, f"g{g}/last", ROUNDS, final, to, receivers=to)
    record_truth(folder, parts, own)


@inbox(f"{NEW}sites validate each other's models at the end")
def _cross_site(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    for u in rounds[-1].uploads:
        others = [f"client/{k}" for k in range(CLIENTS) if k != u.client]
        kinds = {"local_model": u.state}
        name, sender = f"cross/{u.client}", f"client/{u.client}"
        write_message(folder / "inbox", name, ROUNDS, "relay", sender, ["server", *others], kinds)
        for k in range(CLIENTS):
            loss = {"local_loss": {"loss": np.float32(1.5)}}
            write_message(folder / "inbox", f"{name}-{k}", ROUNDS, "uplink", f"client/{k}", ["server"], loss)
    record_truth(folder, parts, own)


@inbox(f"{NEW}clients named in other scripts, their lines last, truth by rows")
def _named(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    for k, name in enumerate(NAMES):
        write_line(folder / "inbox", {"party": f"client/{k}", "node": name})
    write_truth(folder, {"own": own})
    x, y = (np.concatenate([part[i] for part in parts]) for i in range(2))
    np.savez(folder / "truth" / "data.npz", x=x, y=y)
    ends = np.cumsum([len(part[1]) for part in parts])
    rows = {n: list(range(int(e) - len(p[1]), int(e))) for n, e, p in zip(NAMES, ends, parts, strict=True)}
    (folder / "truth" / "indices.json").write_text(json.dumps(rows))


def with_cache(state: State) -> State:
    return {**state, "cache": np.zeros((0, 16), np.float32)}


inbox_of(
    f"{NEW}an empty buffer in the network, the server's mean in float64",
    nets.Cached,
    up=lambda _, u: counted(with_cache(u.state), u.examples),
    down=lambda state: {"global_model": with_cache(typed(np.float64)(state))},
)


@inbox(f"{NEW}the head is trained first, then every layer")
def _unfrozen(folder: Path) -> None:
    parts, own = digits()
    state, done = standard(nets.Mlp)[0][0].before, []
    for t in range(ROUNDS):
        (one,), _ = federate_from(state, parts, t)
        sent = [
            Upload(u.client, u.state if t else only("head")(u.state), u.examples, u.loss) for u in one.uploads
        ]
        done.append(Round(state, sent))
        mean = average({n: state[n] for n in sent[0].state}, sent)
        state = state | mean
    record(folder, done, state)
    record_truth(folder, parts, own)


def federate_from(state: State, parts: Any, t: int) -> tuple[list[Round], State]:
    """One round that begins with `state`; in round 0 the first layer stays."""
    uploads = []
    for k, part in enumerate(parts):
        u = train(nets.Mlp, state, part, 100 * t + k)
        kept = u.state if t else {**state, **only("head")(u.state)}
        uploads.append(Upload(k, kept, u.examples, u.loss))
    return [Round(state, uploads)], average(state, uploads)


@inbox(f"{NEW}asynchronous, uploads from older models with their version")
def _asynchronous(folder: Path) -> None:
    parts, own = digits()
    versions = [start(nets.Mlp)]
    send(folder, "v0", 0, versions[0])
    for t in range(2 * CLIENTS):
        k, begun = t % CLIENTS, max(0, t - 2)
        u = train(nets.Mlp, versions[begun], parts[k], t)
        kinds: Mapping[str, Any] = counted(u.state, u.examples) | {"staleness": {"version": np.int64(begun)}}
        write_message(folder / "inbox", f"u{t}", t, "uplink", f"client/{k}", ["server"], kinds)
        new = {n: (0.6 * v + 0.4 * u.state[n]).astype(v.dtype) for n, v in versions[-1].items()}
        versions.append(new)
        send(folder, f"v{t + 1}", t + 1, new)
    record_truth(folder, parts, own)


@inbox(f"{NEW}secure sums alone, the last model released", has_labels=False)
def _secure_sums(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    for t, one in enumerate(rounds):
        send(folder, f"m{t}", t, one.before)
        total: dict[str, Any] = {"clients": np.int64(CLIENTS)}
        for n in one.before:
            total[f"local_model/{n}"] = sum(u.examples * u.state[n] for u in one.uploads)
        total["num_examples/count"] = np.int64(sum(u.examples for u in one.uploads))
        behind = {"aggregate": list(range(CLIENTS))}
        write_message(
            folder / "inbox", f"s{t}", t, "uplink", "client", ["server"], {"aggregate": total}, behind=behind
        )
    write_message(folder / "inbox", "final", ROUNDS, "release", "server", ["public"], {"global_model": final})
    record_truth(folder, parts, own)


@inbox(f"{NEW}truth as folders of pictures, metrics that are words and no numbers, one example")
def _pictures(folder: Path) -> None:
    parts, own = digits()
    x, y = parts[4]
    few = [*parts[:4], (x[:1], y[:1])]
    to_bytes = [(np.round(255 * x).astype(np.uint8), y) for x, y in [*few, own]]
    rounds, final = federate(nets.Mlp, few)
    for t, one in enumerate(rounds):
        send(folder, f"m{t}", t, one.before)
        for u in one.uploads:
            metrics = {"accuracy": float("nan"), "device": "cuda:0", "done": True, "loss": u.loss}
            reply(folder, f"m{t}-{u.client}", t, u, metrics=metrics)
    send(folder, "last", ROUNDS, final)
    for name, (images, labels) in zip([*(f"client-{k}" for k in range(CLIENTS)), "own"], to_bytes, strict=True):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = folder / "truth" / name / str(label) / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0]).save(path)


ORDERS = {
    name: World(recorded(one.write, None, one.model.replace("nets:", f"{NETS}:"), **FEW), IMPORTS)
    for name, one in INBOXES.items()
    if name.startswith(NEW)
}
