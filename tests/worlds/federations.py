"""Ordinary federations, most as the recorders of Flower and NVFlare leave them.

They are trained by plain loops, and what a recorder would write is written with the inbox that both have. Of each
holds: it imports or is refused in a sentence, nobody honest is contradicted or accused, and what was not tried is
open. The truths were written before any was run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fedaudit.audit.importing.recorders.plain import Inbox
from tests.attacks.world import digits as images_of_digits
from tests.audit.importing import nets
from tests.audit.importing.inboxes import (
    Examples,
    FedAdagrad,
    FedAdam,
    Round,
    State,
    Upload,
    average,
    change,
    federate,
    numbered,
    only,
    record_truth,
    table,
    typed,
    without,
)
from tests.worlds.world import READY, Command, Truth, World, either, recorded, refused, runs, simulated

HERE = "tests.worlds.federations"
NETS = "tests.audit.importing.nets"
FEW: dict[str, Any] = {
    "attacks": ["example_numbers", "label_counts_from_update", "loss_threshold", "hidden_images", "analytic"]
}
SITES = ["site-1", "observer-7", "dataserver", "Klinikum München", "病院 2"]
NODES = [f"{8372907206053482155 + 7 * k}" for k in range(12)]

# What would be wrong of every honest federation of which a few attacks are tried for seconds
HONEST = ("contradicted *", "refuted *", "unread *")
UNTRIED = (
    READY,
    "clear exact_record.*",
    "clear reconstruction.*",
    "clear membership.*",
    "bounded reconstruction.*",
)
NO_RECORD = ("exposed exact_record.*", "hit hidden_images")  # nobody's record stands in what is sent
FALSE = (*HONEST, *UNTRIED, *NO_RECORD)
LEAKS = (*HONEST, *UNTRIED)  # somebody's record does
IMPORTS = runs(false=FALSE)


# ---- Who holds what


def deal(
    sizes: Sequence[int], seed: int = 0, classes: int = 10, own: int = 300
) -> tuple[list[Examples], Examples]:
    """Digits of every class to clients of such sizes, and some that nobody holds."""
    x, y = images_of_digits()
    order = np.random.default_rng(seed).permutation(np.flatnonzero(y < classes))
    ends = np.cumsum([own, *sizes])
    parts = [(x[rows], y[rows]) for rows in np.split(order[: ends[-1]], ends[:-1])]
    return parts[1:], parts[0]


def pairs_of_classes(sizes: Sequence[int] = (40, 42, 44, 46, 48)) -> tuple[list[Examples], Examples]:
    """Two classes a client."""
    x, y = images_of_digits()
    own, rest = (x[:300], y[:300]), (x[300:], y[300:])
    rows = [np.flatnonzero(np.isin(rest[1], [2 * k % 10, (2 * k + 1) % 10]))[:n] for k, n in enumerate(sizes)]
    return [(rest[0][r], rest[1][r]) for r in rows], own


def scanned() -> tuple[list[Examples], Examples]:
    """Sites with scanners of their own: the same digits brighter, darker, blurred and noisy."""
    parts, own = deal([50, 55, 60, 65, 70])
    rng = np.random.default_rng(1)
    scanners: list[Callable[[Any], Any]] = [
        lambda x: x,
        lambda x: 0.4 + 0.6 * x,
        lambda x: 0.5 * x,
        lambda x: (x + np.roll(x, 1, -1) + np.roll(x, 1, -2)) / 3,
        lambda x: np.clip(x + rng.normal(0, 0.2, x.shape), 0, 1),
    ]
    return [(s(x).astype(np.float32), y) for s, (x, y) in zip(scanners, parts, strict=True)], own


# ---- How the server makes its model


def momentum(rate: float = 1.0) -> Callable[[State, Sequence[Upload]], State]:
    """FedAvgM, and NVFlare's FedOpt with SGD."""
    velocity: dict[str, Any] = {}

    def serve(before: State, uploads: Sequence[Upload]) -> State:
        mean = average(before, uploads)
        for n, v in before.items():
            velocity[n] = 0.6 * velocity.get(n, 0) + (mean[n] - v)
        return {n: (v + rate * velocity[n]).astype(v.dtype) for n, v in before.items()}

    return serve


def median(before: State, uploads: Sequence[Upload]) -> State:
    return {n: np.median([u.state[n] for u in uploads], 0).astype(v.dtype) for n, v in before.items()}


def trimmed(before: State, uploads: Sequence[Upload]) -> State:
    """The mean of all but the smallest and the largest."""
    return {n: np.sort([u.state[n] for u in uploads], 0)[1:-1].mean(0).astype(v.dtype) for n, v in before.items()}


def krum(before: State, uploads: Sequence[Upload]) -> State:
    """The upload that lies nearest to the others."""
    flat = np.stack([np.concatenate([v.ravel() for v in u.state.values()]) for u in uploads])
    far = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    return uploads[int(np.sort(far, 1)[:, :3].sum(1).argmin())].state


def no_norm(before: State, uploads: Sequence[Upload]) -> State:
    """FedBN as the server sees it: it has no layer of normalisation."""
    return {n: v if n.startswith("norm") else average(before, uploads)[n] for n, v in before.items()}


def body(before: State, uploads: Sequence[Upload]) -> State:
    """Heads are personal: the mean of bodies."""
    return before | only("hidden")(average(before, uploads))


# ---- What a recorder writes

Kinds = Mapping[str, Mapping[str, Any]]


def no_more(_: State, u: Upload) -> Kinds:
    return {}


def as_it_is(_: State, u: Upload) -> Upload:
    return u


@dataclass(frozen=True)
class Recorded:
    """A federation, and how it is sent: Flower's node ids and broadcasts, or NVFlare's tasks site by site."""

    data: Callable[[], tuple[list[Examples], Examples]] = pairs_of_classes
    # a rectifier that one image alone switches on has that image as its change, which is no false alarm
    make: Callable[[], nn.Module] = nets.MlpTanh
    training: Mapping[str, Any] = field(default_factory=dict)
    framework: str = "flower"
    names: Sequence[str] = tuple(NODES)
    sends: Callable[[State], State] = lambda state: state  # both ways: names, types, which arrays
    is_change: bool = False
    loss: bool = True
    more: Callable[[State, Upload], Kinds] = no_more  # besides the model, from clients
    says: Mapping[str, Any] = field(default_factory=dict)  # what a server says besides the model
    evaluates: Callable[[Upload], Mapping[str, Any]] | None = None
    filters: Sequence[str] = ()
    protect: Callable[[State, Upload], Upload] = as_it_is  # before it is sent
    held_out: int = 0  # of each client, people that it does not train on
    rounds: int = 2

    def write(self, folder: Path) -> None:
        parts, own = self.data()
        kept = [(x[: self.held_out], y[: self.held_out]) for x, y in parts]
        parts = [(x[self.held_out :], y[self.held_out :]) for x, y in parts]
        rounds, final = self.run(parts)
        names = self.names[: len(parts)]
        inbox = Inbox(folder / "inbox", self.framework)
        clients = [inbox.client(name) for name in names]
        for t, one in enumerate(rounds):
            self.send(inbox, t, one.before, [clients[u.client] for u in one.uploads])
            for u in one.uploads:
                self.answer(inbox, t, clients[u.client], one.before, u)
            if self.evaluates:
                self.send(inbox, t + 1, rounds[t + 1].before if t + 1 < len(rounds) else final, clients)
                for u in one.uploads:
                    kinds = {"client:evaluate": self.evaluates(u)}
                    inbox.message(t, "uplink", clients[u.client], ["server"], kinds)
        if not self.evaluates and self.framework == "flower":
            self.send(inbox, len(rounds), final, clients)
        record_truth(folder, parts, own, names)
        if self.held_out:
            (folder / "truth" / "heldout").mkdir()
            for name, (x, y) in zip(names, kept, strict=True):
                np.savez(folder / "truth" / "heldout" / f"{name}.npz", x=x, y=y)

    def run(self, parts: Sequence[Examples]) -> tuple[list[Round], State]:
        given = {"rounds": self.rounds, **self.training}
        serve = given.pop("serve", average)

        def protected(before: State, uploads: Sequence[Upload]) -> State:
            sent.append([self.protect(before, u) for u in uploads])
            made: State = serve(before, sent[-1])
            return made

        sent: list[list[Upload]] = []
        rounds, final = federate(self.make, parts, serve=protected, **given)
        return [Round(r.before, uploads) for r, uploads in zip(rounds, sent, strict=True)], final

    def send(self, inbox: Inbox, t: int, model: State, to: Sequence[str]) -> None:
        kinds = {"global_model": self.sends(model)}
        broadcast = self.framework == "flower"
        for group in [[*to]] if broadcast else [[who] for who in to]:
            seen = ["client"] if broadcast else group
            inbox.message(t, "downlink", "server", seen, kinds, receivers=group)
            if news := inbox.list_news(self.says, group):
                inbox.message(t, "downlink", "server", seen, {"clients:records": news}, receivers=group)

    def answer(self, inbox: Inbox, t: int, client: str, before: State, u: Upload) -> None:
        kinds: dict[str, Mapping[str, Any]]
        if self.is_change:
            kinds = {"model_delta": self.sends(change(before, u))}
        else:
            kinds = {"local_model": self.sends(u.state)}
        if self.framework == "flower":
            kinds["num_examples"] = {"count": u.examples}
            if self.loss:
                kinds["local_loss"] = {"loss": u.loss}
        else:
            kinds["num_steps"] = {"steps": u.examples}
        kinds |= self.more(before, u)
        inbox.message(t, "uplink", client, ["server"], kinds, receivers=["server"], filters=self.filters)


def flower(truth: Truth = IMPORTS, subject: Any = None, **changes: Any) -> World:
    """Recorded at a Flower server; its operator names the network, and states what `subject` does."""
    return brought(Recorded(**changes), truth, subject)


def nvflare(truth: Truth = IMPORTS, subject: Any = None, **changes: Any) -> World:
    """Recorded at an NVFlare server: site by site, weighted by steps."""
    one = Recorded(**({"framework": "nvflare", "names": SITES, "is_change": True} | changes))
    return brought(one, truth, subject)


def brought(one: Recorded, truth: Truth, subject: Any, **config: Any) -> World:
    module = one.make.__module__
    return World(recorded(one.write, subject, f"{module}:{one.make.__name__}", **(FEW | config)), truth)


def stated(clients: int, **more: Any) -> dict[str, Any]:
    """A subject of a federation of digits."""
    examples = {"classes": [str(c) for c in range(10)], "shape": [1, 8, 8], "mean": [0.0], "std": [1.0]}
    given = {"title": "digits", "examples": examples, "clients": clients, "aggregation": "samples"}
    return given | more


FEDAVG = {"name": "fedavg", "rounds": 2, "local_epochs": 3, "batch_size": 10, "lr": 0.1}  # as `train` does it


# ---- Messages besides the model


def lists(_: State, u: Upload) -> Kinds:
    """What Flower's records of metrics and configs hold besides: lists, texts, bytes, truths; of no person."""
    rng = np.random.default_rng(u.examples)
    found = {
        "metrics.losses": [2.3, 1.9, 1.1, 0.8],
        "metrics.confusion": rng.integers(0, 40, 100).tolist(),
        "extra.device": "cuda:0",
        "extra.tags": ["night", "batch-2"],
        "extra.ok": True,
        "extra.keys": [rng.bytes(16), rng.bytes(16)],
        "extra.certificate": rng.bytes(300),
    }
    return {"client:records": found}


def evaluate(u: Upload) -> Mapping[str, Any]:
    return {"metrics.num-examples": u.examples, "metrics.eval_loss": u.loss, "metrics.per_class": [0.5] * 10}


def momenta(before: State, u: Upload) -> Kinds:
    return {"client:momentum": {n: 0.1 * v for n, v in change(before, u).items()}}


def thumbnails(parts: Sequence[Examples]) -> Callable[[State, Upload], Kinds]:
    """Ten images of each client as bytes in a config record."""
    return lambda _, u: {
        "client:records": {
            f"extra.image-{i}": np.round(255 * parts[u.client][0][i]).astype(np.uint8).tobytes()
            for i in range(10)
        }
    }


# ---- Filters and mods of clients


def clip(norm: float, noise: float) -> Callable[[State, Upload], Upload]:
    """Flower's fixedclipping_mod and localdp_mod: the change is clipped and gets noise of that deviation.

    Statistics of a normalisation get none: a variance below 0 would end the training.
    """

    def protect(before: State, u: Upload) -> Upload:
        rng = np.random.default_rng([u.examples, np.float32(u.loss).view(np.uint32)])
        moved = change(before, u)
        length = np.sqrt(sum(float((v**2).sum()) for v in moved.values()))
        factor = min(1.0, norm / length)
        added = {n: 0 if "running" in n else rng.normal(0, noise, v.shape) for n, v in before.items()}
        state = {n: (v + factor * moved[n] + added[n]).astype(v.dtype) for n, v in before.items()}
        return replace(u, state=state)

    return protect


def percentile(before: State, u: Upload) -> Upload:
    """NVFlare's PercentilePrivacy: what moved least is left out, the rest truncated."""
    moved = change(before, u)
    flat = np.abs(np.concatenate([v.ravel() for v in moved.values()]))
    cut = np.percentile(flat, 10)
    kept = {n: np.clip(np.where(np.abs(v) > cut, v, 0), -0.01, 0.01) for n, v in moved.items()}
    return replace(u, state={n: (v + kept[n]).astype(v.dtype) for n, v in before.items()})


def exclude_head(before: State, u: Upload) -> Upload:
    """NVFlare's ExcludeVars: the head's change is sent as zeros."""
    return replace(u, state=u.state | only("head")(before))


def half(before: State, u: Upload) -> Upload:
    """NVFlare's ModelQuantizer to fp16: changes cross in 16 bits."""
    moved = {n: v.astype(np.float16).astype(v.dtype) for n, v in change(before, u).items()}
    return replace(u, state={n: v + moved[n] for n, v in before.items()})


RATE, STEPS, BOUND, NOISE = 0.25, 8, 1.0, 1.0
PRIVATE = [{"name": "dp_sgd", "clip_norm": BOUND, "noise_multiplier": NOISE, "sample_rate": RATE, "steps": STEPS}]


def private_step(state: State, x: Any, y: Any, rng: np.random.Generator) -> State:
    """A step of DP-SGD as Opacus takes it: drawn examples, each gradient clipped, noise on their sum."""
    net = nets.Mlp()
    net.load_state_dict({n: torch.from_numpy(v) for n, v in state.items()})
    total = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
    for i in np.flatnonzero(rng.random(len(y)) < RATE):
        loss = nn.functional.cross_entropy(net(torch.from_numpy(x[i : i + 1])), torch.from_numpy(y[i : i + 1]))
        found = dict(zip(total, torch.autograd.grad(loss, [*net.parameters()]), strict=True))
        length = float(torch.sqrt(sum((g**2).sum() for g in found.values())))
        total = {n: v + found[n] * min(1.0, BOUND / length) for n, v in total.items()}
    drawn = {n: BOUND * NOISE * rng.normal(size=v.shape) for n, v in state.items()}
    step = {n: 0.1 * (total[n].numpy() + drawn[n]) / (RATE * len(y)) for n in state}
    return {n: (v - step[n]).astype(v.dtype) for n, v in state.items()}


def private(parts: Sequence[Examples]) -> Callable[[State, Upload], Upload]:
    """What a client sends that trains by DP-SGD in place of the training that is usual here."""

    def protect(before: State, u: Upload) -> Upload:
        rng, state = np.random.default_rng([u.client, np.float32(u.loss).view(np.uint32)]), before
        for _ in range(STEPS):
            state = private_step(state, *parts[u.client], rng)
        return replace(u, state=state)

    return protect


class Dropped(nets.Adapted):
    """Adapters under dropout, as peft trains them with lora_dropout; a head that is sent whole."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.075)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(self.dropout(x.flatten(1)))))


def adapters(state: State) -> State:
    """As get_peft_model_state_dict names them."""
    return {f"base_model.model.{n.replace('.default.', '.')}": v for n, v in state.items() if "lora_" in n}


def serve_adapters(before: State, uploads: Sequence[Upload]) -> State:
    return before | {n: v for n, v in average(before, uploads).items() if "lora_" in n}


# ---- Federations without a model that is averaged


def with_inbox(framework: str, write: Callable[[Inbox, list[Examples]], None], data: Any, folder: Path) -> None:
    parts, own = data()
    inbox = Inbox(folder / "inbox", framework)
    for name in SITES[: len(parts)]:
        inbox.client(name)
    write(inbox, parts)
    record_truth(folder, parts, own, SITES[: len(parts)])


def model_free(write: Callable[[Inbox, list[Examples]], None], truth: Truth, data: Any = table) -> World:
    """What NVFlare's recorder writes of it; no network is stated."""
    return World(recorded(partial(with_inbox, "nvflare", write, data), None, **FEW), truth)


def tell(inbox: Inbox, t: int, values: Mapping[str, Any], count: int) -> None:
    for k in range(count):
        inbox.message(
            t, "downlink", "server", [f"client/{k}"], {"clients:records": values}, receivers=[f"client/{k}"]
        )


def hear(inbox: Inbox, t: int, k: int, values: Mapping[str, Any], **kinds: Any) -> None:
    inbox.message(
        t, "uplink", f"client/{k}", ["server"], {"client:records": values, **kinds}, receivers=["server"]
    )


def statistics(inbox: Inbox, parts: list[Examples]) -> None:
    """fed_stats: counts, sums and ranges, then histograms, with noise on ranges, by column."""
    for t, names in enumerate((("count", "sum", "min", "max"), ("histogram",))):
        tell(inbox, t, {"message.statistics": [*names]}, len(parts))
        for k, (x, _) in enumerate(parts):
            found: dict[str, Any] = {}
            for i, column in enumerate(x.T):
                every = {"count": len(column), "sum": float(column.sum()), "min": -0.1, "max": 1.1}
                every["histogram"] = np.histogram(column, 8, (-0.1, 1.1))[0].tolist()
                found |= {f"STATISTICS.{n}.train.f{i}": every[n] for n in names}
            hear(inbox, t, k, found)


def boosted(inbox: Inbox, parts: list[Examples]) -> None:
    """XGBoost by bagging: each site grows a tree a round and sends it as JSON; its splits lie on a grid."""
    grown: list[str] = []
    for t in range(2):
        tell(inbox, t, {"WEIGHTS.model_data": grown} if grown else {"meta.round": t}, len(parts))
        trees = []
        for k, (x, y) in enumerate(parts):
            column = int(np.abs(np.corrcoef(x.T, y)[-1, :-1]).argmax())
            split = round(float(np.median(x[:, column])) * 16) / 16
            leaf = [
                round(float(y[x[:, column] < split].mean()), 2),
                round(float(y[x[:, column] >= split].mean()), 2),
            ]
            trees.append(f'{{"tree":{k + 10 * t},"split":[{column},{split}],"leaves":{leaf}}}')
            hear(inbox, t, k, {"WEIGHTS.model_data": trees[-1].encode(), "meta.iterations": t})
        grown += trees


def support_vectors(inbox: Inbox, parts: list[Examples]) -> None:
    """scikit-learn's SVM as NVFlare's example federates it: rows of the training table are the model."""
    rows = [(x[:12], y[:12]) for x, y in parts]
    tell(inbox, 0, {"meta.round": 0}, len(parts))
    for k, (x, y) in enumerate(rows):
        hear(inbox, 0, k, {"WEIGHTS.support_x": x.astype(np.float64), "WEIGHTS.support_y": y})
    every = {"WEIGHTS.support_x": np.concatenate([x for x, _ in rows]).astype(np.float64)}
    tell(inbox, 1, every, len(parts))


def k_means(inbox: Inbox, parts: list[Examples]) -> None:
    """scikit-learn's mini-batch k-means: three centres and how many rows are nearest to each."""
    centres = np.array([[0.2] * 6, [0.5] * 6, [0.8] * 6])
    for t in range(2):
        tell(inbox, t, {"WEIGHTS.center": centres, "WEIGHTS.count": None}, len(parts))
        sums, counts = np.zeros_like(centres), np.zeros(3)
        for k, (x, _) in enumerate(parts):
            nearest = ((x[:, None] - centres) ** 2).sum(-1).argmin(1)
            count = np.bincount(nearest, minlength=3)
            own = np.stack([x[nearest == c].mean(0) if count[c] > 4 else centres[c] for c in range(3)])
            hear(inbox, t, k, {"WEIGHTS.center": own, "WEIGHTS.count": np.where(count > 4, count, 0)})
            sums, counts = sums + own * count[:, None], counts + count
        centres = sums / np.maximum(counts, 1)[:, None]


def swarm(inbox: Inbox, parts: list[Examples], tells_itself: bool = True) -> None:
    """Another site gathers in each round; there is no server."""
    everybody = [f"client/{k}" for k in range(len(parts))]
    rounds, final = federate(nets.Mlp, parts, rounds=2)
    for t, one in enumerate(rounds):
        chief, others = everybody[t], [c for c in everybody if c != everybody[t]]
        inbox.message(t, "relay", chief, others, {"global_model": one.before}, receivers=others)
        for u in one.uploads:
            if tells_itself or everybody[u.client] != everybody[t + 1]:
                kinds = {"local_model": u.state, "num_steps": {"steps": u.examples}}
                to = [everybody[t + 1]]
                inbox.message(t, "relay", everybody[u.client], to, kinds, receivers=to)
    inbox.message(2, "relay", everybody[2], everybody[:2], {"global_model": final}, receivers=everybody[:2])


def cycle(inbox: Inbox, parts: list[Examples]) -> None:
    """Each site goes on with the model of the one before it, which hands it on."""
    state = federate(nets.Mlp, parts, rounds=0)[1]
    everybody = [f"client/{k}" for k in range(len(parts))]
    inbox.message(0, "downlink", "server", everybody[:1], {"global_model": state}, receivers=everybody[:1])
    for t in range(2):
        for k, to in enumerate([*everybody[1:], everybody[0]]):
            (one,), _ = federate(nets.Mlp, [parts[k]], rounds=1, epochs=1)
            moved = change(one.before, one.uploads[0])
            state = {n: v + 0.3 * moved[n] for n, v in state.items()}
            inbox.message(t, "relay", everybody[k], [to], {"relay_model": state}, receivers=[to])


def peers(write: Callable[[Inbox, list[Examples]], None], truth: Truth = IMPORTS) -> World:
    """Sites that send to each other."""
    data = partial(pairs_of_classes, [40, 42, 44])
    return World(recorded(partial(with_inbox, "nvflare-client", write, data), None, f"{NETS}:Mlp", **FEW), truth)


# ---- Truth in other forms


def rewrite_truth(change: Callable[[str, Any, Any], tuple[Any, Any]], one: Recorded, folder: Path) -> None:
    """What clients hold, as their operator has it."""
    one.write(folder)
    for path in (folder / "truth").glob("*.npz"):
        with np.load(path) as file:
            x, y = change(path.stem, file["x"], file["y"])
        np.savez(path, x=x, y=y)


def as_pictures(bits: int, first: int, folder: Path, strays: bool = False) -> None:
    """The truth as torchvision's folders, in so many bits, classes named from `first` on."""
    Recorded().write(folder)
    for path in [*(folder / "truth").glob("*.npz")]:
        with np.load(path) as file:
            x, y = file["x"][:, 0], file["y"]
        path.unlink()
        save_pictures(folder / "truth" / path.stem, x, y, bits, first, strays)


def save_pictures(folder: Path, x: Any, y: Any, bits: int, first: int = 0, strays: bool = False) -> None:
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        place = folder / f"class {label + first:02}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.round(image * (2**bits - 1)).astype(np.uint8 if bits == 8 else np.uint16)
        Image.fromarray(pixels).save(place / f"{i}.png")
    if strays:
        for name in (".ipynb_checkpoints", "__MACOSX", ".DS_Store"):
            (folder / name).mkdir()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "__MACOSX" / "._0.png")
        (folder / f"class {min(y) + first:02}" / "Thumbs.db").write_bytes(b"\x00\x01")


def of_truth(write: Callable[[Path], None], truth: Truth) -> World:
    return World(recorded(write, None, f"{NETS}:Mlp", **FEW), truth)


def own_of(change: Callable[[str, Any, Any], tuple[Any, Any]], truth: Truth, **changes: Any) -> World:
    one = Recorded(**changes)
    write = partial(rewrite_truth, change, one)
    return World(recorded(write, None, f"{NETS}:{one.make.__name__}", **FEW), truth)


def hole(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    x[3, 1] = np.nan
    return x, y


def folders(
    bits: int, first: int, strays: bool, name: str = "image_folder"
) -> Callable[[Path], Sequence[Command]]:
    """A simulated federation of images in folders, as torchvision reads them."""

    def bring(folder: Path) -> Sequence[Command]:
        x, y = images_of_digits()
        save_pictures(folder / "images", x[:400, 0], y[:400], bits, first, strays)
        given = {"dataset": {"name": name, "path": str(folder / "images"), "size": 8, "grayscale": True}}
        *before, check = simulated(federation=SMALL_MLP | given, method=TRAINS, **FEW)(folder)
        return [*before, [*check, "--data", f"{name}={folder / 'images'}"]]

    return bring


def spreadsheet(schema: str) -> Callable[[Path], Sequence[Command]]:
    """Rows with a header, and a schema beside them, as a hospital exports them."""
    return partial(_export, schema)


def _export(schema: str, folder: Path) -> Sequence[Command]:
    lines = [
        "age,sex,lactate,died",
        *(f"{20 + i % 60},{'fm'[i % 2]},{i % 7 or ''},{i % 3 == 0}" for i in range(200)),
    ]
    (folder / "rows.csv").write_text("\n".join(lines))
    (folder / "schema.yaml").write_text(schema)
    given = {"dataset": {"name": "csv", "path": str(folder / "rows.csv"), "schema": str(folder / "schema.yaml")}}
    asked = FEW | {"attacks": ["loss_threshold", "label_counts_from_update", "analytic_rows"]}
    *before, check = simulated(federation=SMALL_MLP | given, method=TRAINS, **asked)(folder)
    copies = ["--data", f"csv={folder / 'rows.csv'}", "--data", f"schema={folder / 'schema.yaml'}"]
    return [*before, [*check, *copies]]


SMALL_MLP: dict[str, Any] = {"clients": 4, "model": {"name": "mlp", "hidden": [8]}, "availability": "full"}
TRAINS: dict[str, Any] = {"name": "fedavg", "rounds": 2, "local_epochs": 1, "batch_size": 20, "lr": 0.1}


def many(clients: int) -> Callable[[Path], Sequence[Command]]:
    """DP-FedAvg: one person a client, few of whom take part in a round, and a server that noises the mean."""
    return simulated(
        federation={
            "dataset": "digits",
            "limit": clients,
            "clients": clients,
            "partition": "iid",
            "availability": {"name": "bernoulli", "p": 0.02},
            "empty_round": "skip",
            "model": "logreg",
        },
        method=TRAINS | {"rounds": 3, "weighting": "uniform"},
        protections=[{"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}, "secure_aggregation"],
        record="last",
        **FEW,
    )


LABELS = ("label", "class", "y")
SHAPE = ("shape", "channels", "axes", "[")
TABLES: dict[str, Any] = {"data": table, "make": nets.Table, "training": {"epochs": 5}}
HELD = {"data": partial(pairs_of_classes, [60, 62, 64, 66, 68]), "held_out": 20}
CLAIMED = [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 0.05}]

# The whole panel has the time that it takes, and all that an audit needs is given
PANEL = [
    *(
        "hidden_images",
        "played_message",
        "played_facts",
        "rmia",
        "model_inversion",
        "confidence",
        "entropy",
        "loss_threshold",
    ),
    *("label_counts_from_update", "label_counts_from_gradient", "example_numbers", "majority_class", "analytic"),
]
ANSWERED = runs(false=("contradicted *", "refuted *", "unread *", READY, *NO_RECORD), answers=0.6)
UNKNOWN = "hospitals are alike, and who is who does not follow from changes alone"
HOSPITALS: dict[str, Any] = {"data": partial(deal, [140, 190, 260, 340]), "held_out": 40}


def whole(one: Recorded, wrong: str = "") -> World:
    """A federation whose operator states how it was trained, and all of whose panel runs."""
    subject = stated(len(one.data()[0]), method=FEDAVG | {"rounds": one.rounds})
    return replace(brought(one, ANSWERED, subject, attacks=PANEL, budget=10), wrong=wrong)


EVERYTHING: dict[str, World] = {
    "whole panel: clients of two classes": whole(Recorded(**HELD)),
    "whole panel: clients of two classes, one round": whole(Recorded(**HELD, rounds=1)),
    "whole panel: hospitals of 100 to 300 images": whole(Recorded(**HOSPITALS)),
    "whole panel: hospitals, one round": whole(Recorded(**HOSPITALS, rounds=1)),
    "whole panel: hospitals, changes in NVFlare": whole(
        Recorded(**HOSPITALS, framework="nvflare", names=SITES, is_change=True), UNKNOWN
    ),
}

FEDERATIONS: dict[str, World] = {
    # ---- Flower
    "Flower: messages, FedAvg": flower(),
    "Flower: messages, evaluation on": flower(evaluates=evaluate),
    "Flower: lists, texts and bytes in metrics and configs": flower(
        more=lists, says={"config.lr": 0.1, "config.tag": "v1", "config.blob": b"\x00\x01"}
    ),
    "Flower: lists and evaluation, a part of the clients a round": flower(
        more=lists, evaluates=evaluate, training={"heard": lambda t: [[0, 1, 2], [1, 3, 4]][t]}
    ),
    "Flower: a second record of arrays": flower(more=momenta),
    # Ten images of each of five clients stand in what it sends, in bytes
    "Flower: images of clients in bytes": flower(
        runs(false=LEAKS, says=("exposed exact_record.server", "hit hidden_images")),
        **HELD,
        more=thumbnails([(x[20:], y[20:]) for x, y in pairs_of_classes([60, 62, 64, 66, 68])[0]]),
    ),
    "Flower: NumPyClients, arrays by position": flower(sends=numbered, loss=False),
    "Flower: NumPyClients, BatchNorm": flower(make=nets.Normed, sends=numbered, loss=False),
    "Flower: FedAdam": flower(training={"serve": FedAdam()}),
    "Flower: FedAdagrad, BatchNorm": flower(make=nets.Normed, training={"serve": FedAdagrad()}),
    "Flower: FedAvgM": flower(training={"serve": momentum()}),
    "Flower: FedProx": flower(training={"proximal": 1.0}),
    "Flower: FedMedian": flower(training={"serve": median}),
    "Flower: FedTrimmedAvg": flower(training={"serve": trimmed}),
    "Flower: Krum": flower(training={"serve": krum}),
    "Flower: clients train with Adam": flower(training={"optimiser": torch.optim.Adam, "lr": 0.01}),
    "Flower: training is stated": flower(runs(false=FALSE, answers=0.0), stated(5, method=FEDAVG)),
    # Nobody can state a layer's statistics that stay at clients, but which layers they are
    "Flower: FedBN": flower(
        refused("norm"),
        make=nets.Normed,
        sends=without("norm.weight", "norm.bias", "mean", "var", "tracked"),
        training={"serve": no_norm},
    ),
    "Flower: FedBN, its base is named": flower(
        either("norm", "base", false=FALSE),
        stated(5, base="layers of normalisation stay at clients"),
        make=nets.Normed,
        sends=without("norm.weight", "norm.bias", "mean", "var", "tracked"),
        training={"serve": no_norm},
    ),
    "Flower: personal heads": flower(refused("head"), sends=only("hidden"), training={"serve": body}),
    "Flower: personal heads, the body is what is shared": flower(
        either("head", "base", false=FALSE),
        stated(5, base="heads stay at clients"),
        sends=only("hidden"),
        training={"serve": body},
    ),
    "Flower: a client-side mod clips": flower(protect=clip(0.5, 0.0)),
    "Flower: a client-side mod clips and adds noise": flower(protect=clip(1.0, 0.05)),
    "Flower: a client-side mod, and what it does is claimed": flower(
        runs(false=(*FALSE, "refuted *")), stated(5, protections=CLAIMED), protect=clip(1.0, 0.05)
    ),
    "Flower: clients train by DP-SGD as Opacus does": flower(
        protect=private(pairs_of_classes()[0]), training={"epochs": 0}, loss=False
    ),
    "Flower: clients train by DP-SGD, and that is claimed": flower(
        subject=stated(5, protections=PRIVATE),
        protect=private(pairs_of_classes()[0]),
        training={"epochs": 0},
        loss=False,
    ),
    "Flower: adapters under dropout and AdamW": flower(
        IMPORTS,
        stated(5, base="an MLP that every client has", trained=["*lora_*"]),
        make=Dropped,
        sends=adapters,
        training={"serve": serve_adapters, "optimiser": torch.optim.AdamW, "lr": 0.01},
    ),
    "Flower: in double precision": flower(sends=typed(np.float64)),
    "Flower: in half precision": flower(sends=typed(np.float16)),
    "Flower: a table": flower(IMPORTS, **TABLES),
    "Flower: a table, evaluation on, lists": flower(IMPORTS, **TABLES, evaluates=evaluate, more=lists),
    # ---- NVFlare
    "NVFlare: changes of sites with odd names": nvflare(),
    # Whose changes go on in the direction of those of the round before
    "NVFlare: changes of hospitals of 100 to 300 images": nvflare(data=partial(deal, [100, 150, 220, 300])),
    "NVFlare: whole models of sites with odd names": nvflare(is_change=False),
    "NVFlare: BatchNorm, changes": nvflare(make=nets.Normed),
    "NVFlare: BatchNorm, changes whose counters are floating-point numbers": nvflare(
        make=nets.Normed, sends=lambda state: {n: v.astype(np.float32) for n, v in state.items()}, rounds=3
    ),
    "NVFlare: FedOpt": nvflare(training={"serve": momentum()}),
    "NVFlare: PercentilePrivacy": nvflare(protect=percentile, filters=["PercentilePrivacy"]),
    "NVFlare: a privacy filter that adds noise": nvflare(protect=clip(1.0, 0.05), filters=["SVTPrivacy"]),
    "NVFlare: ExcludeVars": nvflare(protect=exclude_head, filters=["ExcludeVars"]),
    "NVFlare: changes in 16 bits": nvflare(protect=half, sends=typed(np.float16)),
    "NVFlare: metadata beside the model": nvflare(
        more=lambda _, u: {"client:records": {"meta.initial_metrics.accuracy": 0.5, "meta.site": "a ward"}},
        says={"meta.props.hint": "x", "meta.total_rounds": 2},
    ),
    "NVFlare: statistics": model_free(statistics, IMPORTS),
    "NVFlare: XGBoost by bagging": model_free(boosted, IMPORTS),
    # Twelve rows of each site's table are the model that it sends
    "NVFlare: scikit-learn's SVM": model_free(
        support_vectors, runs(false=LEAKS, says=("exposed exact_record.server", "hit raw-client:records"))
    ),
    "NVFlare: scikit-learn's k-means": model_free(k_means, IMPORTS),
    "NVFlare: swarm learning": peers(swarm),
    "NVFlare: swarm learning, the gatherer's own is not sent": peers(partial(swarm, tells_itself=False)),
    "NVFlare: cyclic learning": peers(cycle),
    # ---- Who takes part
    "sites with other scanners": flower(data=scanned),
    "sites with other scanners, training is stated": flower(IMPORTS, stated(5, method=FEDAVG), data=scanned),
    "hospitals of 100 to 300 images": flower(data=partial(deal, [100, 150, 220, 300]), training={"epochs": 2}),
    "two hospitals": flower(data=partial(deal, [100, 140])),
    # Of twenty people whom a ReLU sees, one alone may move a row of the first layer, which then is that person
    "twelve clients, a third a round": flower(
        runs(false=LEAKS),
        data=partial(deal, [*range(20, 32)]),
        training={"heard": lambda t: [[0, 3, 6, 9], [1, 4, 7, 10]][t]},
    ),
    # ---- What they hold, as they have it
    "truth: folders of classes, 8 bits": of_truth(partial(as_pictures, 8, 0), IMPORTS),
    "truth: folders of classes, 16 bits": of_truth(partial(as_pictures, 16, 0), IMPORTS),
    "truth: folders of classes, named from 1": of_truth(partial(as_pictures, 8, 1), IMPORTS),
    "truth: folders of classes, hidden ones among them": of_truth(
        partial(as_pictures, 8, 0, strays=True), IMPORTS
    ),
    "truth: images of 16 bits": own_of(
        lambda _, x, y: (np.round(65535 * x).astype(np.uint16), y),
        either("16", "uint16", "65,535", "0 to 1", false=FALSE),
    ),
    "truth: labels from 1": own_of(
        lambda _, x, y: (x, y + 1), either(*LABELS, false=(READY, "hit label_counts_from_update"))
    ),
    "truth: several labels": own_of(
        lambda _, x, y: (x, np.stack([y % 2, y > 4], 1).astype(np.int64)), refused(*LABELS)
    ),
    "truth: labels as words": own_of(lambda _, x, y: (x, y.astype("U2")), either(*LABELS, false=FALSE)),
    "truth: volumes": own_of(lambda _, x, y: (x.reshape(len(x), 1, 4, 4, 4), y), either(*SHAPE, false=FALSE)),
    "truth: a table with missing values": own_of(hole, refused("NaN", "finite", "missing"), **TABLES),
    "truth: a table that is not scaled": own_of(
        lambda _, x, y: (100 * x - 20, y), either("0 to 1", "0..1", "scale", false=FALSE), **TABLES
    ),
    "data: folders of classes": World(folders(8, 0, False), IMPORTS),
    "data: folders of classes, 16 bits": World(folders(16, 0, False), IMPORTS),
    "data: folders of classes, named from 1, hidden ones among them": World(folders(8, 1, True), IMPORTS),
    "data: a CSV with a schema": World(
        spreadsheet(
            "{label: died, columns: {age: {kind: number, unit: years, step: 1}, sex: {kind: category}, "
            "lactate: {kind: number, missing: true}}}"
        ),
        runs(false=("refuted *", "contradicted *", READY)),
    ),
    "data: a CSV with somebody's own schema": World(
        spreadsheet('{"age": "integer", "sex": "category", "lactate": "number", "died": "label"}'),
        refused("unknown key age", "columns"),
    ),
    # Its server reads sums of a dozen clients of one picture each before it noises them
    "DP-FedAvg of 1,000 clients": World(
        many(1000), runs(false=("refuted *", "contradicted *", "exposed *.client", "exposed *.public", READY))
    ),
    "DP-SGD, of examples": World(
        simulated(
            federation=SMALL_MLP | {"dataset": "digits", "limit": 500},
            method=TRAINS,
            protections=[{"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 1.0}],
            **FEW,
        ),
        runs(false=("refuted *", "contradicted *", *NO_RECORD, READY)),
    ),
}
