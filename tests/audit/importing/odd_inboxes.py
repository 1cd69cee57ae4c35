"""Rarer inboxes: a part of a network, kinds of a federation's own, odd arrays, compressed and masked uploads."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save, save_file

from tests.audit.importing import nets
from tests.audit.importing.inboxes import (
    State,
    Upload,
    average,
    both,
    change,
    counted,
    digits,
    federate,
    inbox,
    inbox_of,
    only,
    prototypes,
    record,
    record_truth,
    standard,
    to_state,
    write_line,
    write_message,
)

BASE = {"base": "an MLP that every client has"}


# A part of a network


def is_adapter(name: str) -> bool:
    return "lora_" in name


def name_as_peft(state: State) -> State:
    """What get_peft_model_state_dict holds: adapters alone, below its prefix, without the adapter's own name."""
    return {f"base_model.model.{n.replace('.default.', '.')}": v for n, v in state.items() if is_adapter(n)}


def serve_adapters(before: State, uploads: Any) -> State:
    mean = average(before, uploads)
    return {n: mean[n] if is_adapter(n) else v for n, v in before.items()}


def write_base(path: Path) -> None:
    torch.manual_seed(0)
    save_file({n: v for n, v in to_state(nets.Adapted()).items() if not is_adapter(n)}, path)


TRAINED = {"training": {"serve": serve_adapters, "epochs": 6, "lr": 0.2}, "has_labels": False}
inbox_of("adapters, their base only named", nets.Adapted, **both(name_as_peft), **TRAINED, states=BASE)
inbox_of(
    "adapters, nothing of their network stated", nets.Adapted, **both(name_as_peft), **TRAINED | {"model": ""}
)
inbox_of("a frozen body, its weights only named", **both(only("head")), states=BASE, has_labels=False)


# Kinds of a federation's own


def optimiser(state: State) -> State:
    """The moments that Adam keeps of a model."""
    return {
        f"{m}.{n}": np.asarray(v, np.float32) ** i for i, m in ((1, "avg"), (2, "sq")) for n, v in state.items()
    }


def describe_classes(u: Upload) -> Mapping[str, Any]:
    """Mean and spread of pixels of each class that a client holds."""
    x, y = digits()[0][u.client]
    flat, classes = x.reshape(len(x), -1), np.unique(y)
    found = {"mean": [flat[y == c].mean(0) for c in classes], "std": [flat[y == c].std(0) for c in classes]}
    return {"classes": classes, **{name: np.stack(rows) for name, rows in found.items()}}


inbox_of(
    "an optimiser's state beside the model",
    up=lambda _, u: {**counted(u.state, u.examples), "client:optimizer": optimiser(u.state)},
)
inbox_of(
    "statistics of each class beside the model",
    up=lambda _, u: {**counted(u.state, u.examples), "class:pixel_statistics": describe_classes(u)},
)


@inbox("prototypes under a name of their own", model="", has_labels=False)
def _class_means(folder: Path) -> None:
    """Those of "page: prototypes alone", with the recorder's counts of messages."""
    parts, own = digits()
    for k, part in enumerate(parts):
        sent, n = prototypes(part)["local_prototypes"], prototypes(part)["proto_counts"]["counts"]
        kinds = {"class:class_means": {"of": sent["classes"], "mean": sent["features"], "n": n}}
        write_message(folder / "inbox", f"client-{k}", 0, "uplink", f"client/{k}", ["server"], kinds)
    traffic = {"traffic": "class:class_means", "round": 0, "channel": "uplink", "sender": "client"}
    told = {"senders": len(parts), "seen_by": ["server"], "messages": len(parts), "bytes": 5000}
    write_line(folder / "inbox", traffic | told)
    record_truth(folder, parts, own)


inbox_of(
    "examples under a name of their own",
    up=lambda _, u: {**counted(u.state, u.examples), "example:buffer": {"x": digits()[0][u.client][0][:3]}},
)
inbox_of(
    "a kind of its own of nobody known",
    up=lambda _, u: {**counted(u.state, u.examples), "hospital:optimizer": optimiser(u.state)},
    refused="'hospital:optimizer' is no kind",
)


# Odd arrays and uploads


def beside(**arrays: Any) -> Any:
    """A model with more arrays of its own in it."""
    return {"up": lambda _, u: counted({**u.state, **arrays}, u.examples), "refused": "unknown to it"}


EMPTY, SCALAR = np.zeros((0, 4), np.float32), np.float32(3)
MANY = {f"a{i}": np.full(2, i, np.float32) for i in range(10_000)}
inbox_of("an array of no numbers beside the model", **beside(empty=EMPTY))
inbox_of("a number beside the model", **beside(step=SCALAR))
inbox_of(
    "arrays of no numbers, network not stated",
    up=lambda _, u: counted({**u.state, "empty": EMPTY, "step": SCALAR}, u.examples),
    down=lambda s: {"global_model": {**s, "empty": EMPTY, "step": SCALAR}},
    model="",
    has_labels=False,
)
inbox_of(
    "ten thousand arrays",
    up=lambda _, u: counted({**u.state, **MANY}, u.examples),
    cut=1,
    is_final=False,
    model="",
    has_labels=False,
)
inbox_of(
    "names in Cyrillic and with slashes",
    **both(lambda s: {f"сеть/{n}": v for n, v in s.items()}),
    model="",
    has_labels=False,
)
inbox_of(
    "names that lead elsewhere",
    **both(lambda s: {f"../{n}": v for n, v in s.items()}),
    model="",
    has_labels=False,
)
inbox_of(
    "rounds whose layers differ",
    up=lambda _, u: counted(only("head")(u.state) if u.client % 2 else u.state, u.examples),
    has_labels=False,
)


def quantise(state: State) -> dict[str, Mapping[str, Any]]:
    """int8 with a scale for each array."""
    scale = {n: np.float32(np.abs(v).max() / 127 + 1e-12) for n, v in state.items()}
    levels = {n: np.round(v / scale[n]).astype(np.int8) for n, v in state.items()}
    return {"local_model": levels, "client:scales": scale}


inbox_of("uploads as int8 with scales", up=lambda _, u: quantise(u.state), refused="is of whole numbers")


def keep_largest(state: State, many: int = 50) -> dict[str, Any]:
    flat = np.concatenate([v.ravel() for v in state.values()])
    index = np.argsort(-np.abs(flat))[:many]
    return {"client:sparse_change": {"index": index, "values": flat[index]}}


inbox_of("sparse uploads: indices and values", up=lambda b, u: keep_largest(change(b, u)), has_labels=False)


def mask(before: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
    """Secure aggregation, as the server receives it: whole numbers that mean nothing alone."""
    rng = np.random.default_rng(u.client)
    return {"client:masked_upload": {n: rng.integers(0, 2**32, v.shape, np.uint32) for n, v in u.state.items()}}


inbox_of("masked uploads", up=mask, has_labels=False)
inbox_of(
    "masked uploads under the name of models",
    up=lambda b, u: {"local_model": mask(b, u)["client:masked_upload"]},
    refused="is of whole numbers",
)


@inbox("a server that begins with round 0 again", refused="in round 0 client/0 was sent 2 different models")
def _restarted(folder: Path) -> None:
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    again, _ = federate(nets.Mlp, parts, rounds=2, lr=0.05)
    for t, one in enumerate(again):
        begun = {n: v + np.float32(0.01) for n, v in one.before.items()}
        write_message(folder / "inbox", f"b{t}", t, "downlink", "server", ["client"], {"global_model": begun})
        for u in one.uploads:
            sent = counted(u.state, u.examples)
            write_message(
                folder / "inbox", f"b{t}-{u.client}", t, "uplink", f"client/{u.client}", ["server"], sent
            )
    record_truth(folder, parts, own)


@inbox("a model of complex numbers", refused="has type 'C64'")
def _complex(folder: Path) -> None:
    _rewrite(folder, "F64", "C64")


def _rewrite(folder: Path, kind: str, other: str) -> None:
    """The first message with numbers of one type that its header says are of another, and a digest that fits."""
    parts, own = digits()
    rounds, final = standard(nets.Mlp)
    record(folder, rounds, final)
    record_truth(folder, parts, own)
    manifest = folder / "inbox" / "manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    first = next(line for line in lines if "message" in line)
    path = folder / "inbox" / f"{first['message']}.safetensors"
    data = save({n: v.astype(f"f{int(kind[1:]) // 8}") for n, v in load(path.read_bytes()).items()})
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length].replace(f'"{kind}"'.encode(), f'"{other}"'.encode())
    data = len(head).to_bytes(8, "little") + head + data[8 + length :]
    path.write_bytes(data)
    first["sha256"] = hashlib.sha256(data).hexdigest()
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
