"""Degenerate federations that ran elsewhere and were recorded. The truths were written before any was run."""

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor, nn

from tests.audit.importing import nets
from tests.audit.importing.inboxes import (
    Examples,
    Round,
    State,
    Upload,
    average,
    counted,
    digits,
    federate,
    record,
    record_truth,
    start,
    to_state,
    write_message,
)
from tests.worlds.world import READY, TELLS_NOT, Bring, World, either, recorded, refused, runs

CLIENTS, NAN = 3, np.float32("nan")
FEW = ["example_numbers", "label_counts_from_update", "loss_threshold", "hidden_images", "analytic"]


class OneLogit(nn.Module):
    """[b, 1, 8, 8] -> [b, 1]: how much likelier the second of two classes is."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(64, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.hidden(x.flatten(1))))
        return out


# ---- What is brought

Up = Callable[[State, Upload], Mapping[str, Mapping[str, Any]]]


def send_model(_: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
    return counted(u.state, u.examples)


def write(
    folder: Path,
    *,
    up: Up = send_model,
    parts: Sequence[Examples] | None = None,
    own: Examples | None = None,
    play: Callable[[list[Round], State], tuple[list[Round], State]] = lambda rounds, final: (rounds, final),
    truth: bool = True,
    make: Callable[[], nn.Module] = nets.Mlp,
    **training: Any,
) -> None:
    """Two rounds of FedAvg of three clients with two classes each, and what they held; or what is said.

    `play` changes what happened before it is recorded.
    """
    usual, others = digits(CLIENTS)
    held = usual if parts is None else parts
    rounds, final = play(*federate(make, held, rounds=2, **training))
    record(folder, rounds, final, up=up)
    if truth:
        record_truth(folder, held, others if own is None else own)


def world(
    subject: Mapping[str, Any] | None = None, model: str = "Mlp", attacks: Any = FEW, **written: Any
) -> Any:
    network = model if ":" in model or not model else f"tests.audit.importing.nets:{model}"
    return recorded(partial(write, **written), subject, network, attacks=attacks)


def beside(kind: str, **arrays: Any) -> Bring:
    """Every client sends these besides its model; a function is asked what a client sends."""

    def up(_: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
        sent = {name: array(u.client) if callable(array) else array for name, array in arrays.items()}
        return {**counted(u.state, u.examples), kind: sent}

    return world(up=up)


def bytes_of(client: int) -> NDArray[np.float32]:
    """Twelve images that a client holds, [12, 64] from 0 to 255."""
    images: NDArray[np.float32] = np.round(255 * digits(CLIENTS)[0][client][0][:12]).reshape(12, 64)
    return images


def text_of(client: int) -> NDArray[np.uint8]:
    """The same twelve as JSON."""
    return np.frombuffer(json.dumps({"rows": bytes_of(client).tolist()}).encode(), np.uint8)


def image(client: int = 0) -> Any:
    """One image that a client holds, [8, 8] from 0 to 1."""
    return digits(CLIENTS)[0][client][0][0, 0]


def of_client(client: int, change: Callable[[Any], Any]) -> Up:
    """One client's arrays are changed before they are sent."""
    return lambda _, u: counted(
        {n: change(v) for n, v in u.state.items()} if u.client == client else u.state, u.examples
    )


def of_round(number: int, change: Callable[[Upload], Upload]) -> Callable[[list[Round], State], Any]:
    """All uploads of one round are changed before they are sent; the server has no part in it."""

    def play(rounds: list[Round], final: State) -> tuple[list[Round], State]:
        changed = [
            Round(r.before, [change(u) for u in r.uploads]) if t == number else r for t, r in enumerate(rounds)
        ]
        return changed, final

    return play


def lost(u: Upload) -> Upload:
    return Upload(u.client, {n: v * NAN for n, v in u.state.items()}, u.examples, u.loss)


def diverged(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """All training of the last round gave NaN, and so did the server's mean."""
    return of_round(1, lost)(rounds, final)[0], {n: v * NAN for n, v in final.items()}


def forged(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """No upload counts anything, and the server's models are those of one client."""
    nobodys = [r.uploads[0].state for r in rounds]
    none = [[Upload(u.client, u.state, 0, u.loss) for u in r.uploads] for r in rounds]
    return [Round(rounds[0].before, none[0]), Round(nobodys[0], none[1])], nobodys[1]


def still(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """Every upload is the model that was sent, and the server keeps it."""
    first = rounds[0].before
    return [Round(first, [Upload(u.client, first, u.examples, u.loss) for u in r.uploads]) for r in rounds], first


def constant(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """Every upload has one number everywhere, and so has their mean."""
    flat = {n: np.full_like(v, 0.25) for n, v in final.items()}
    sent = [[Upload(u.client, flat, u.examples, u.loss) for u in r.uploads] for r in rounds]
    return [Round(rounds[0].before, sent[0]), Round(flat, sent[1])], flat


def silence(folder: Path) -> None:
    """Models were sent, and nobody answered; the truth has examples of the auditor's own alone."""
    first = start(nets.Mlp)
    record(folder, [Round(first, []), Round(first, [])], first)
    record_truth(folder, [], digits(CLIENTS)[1])


def one_round_in_part(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """Of the last round one upload was recorded."""
    return [rounds[0], Round(rounds[1].before, rounds[1].uploads[:1])], final


class CountNothingOnce:
    """In the first round all clients state that they hold nothing, and the server takes their plain mean."""

    def __init__(self) -> None:
        self.first: set[int] = set()

    def up(self, _: State, u: Upload) -> Mapping[str, Mapping[str, Any]]:
        return counted(u.state, 0 if id(u.state) in self.first else u.examples)

    def serve(self, before: State, uploads: Sequence[Upload]) -> State:
        if self.first:
            return average(before, uploads)
        self.first = {id(u.state) for u in uploads}
        return average(before, uploads, [1.0] * len(uploads))


def count_nothing_once(folder: Path) -> None:
    once = CountNothingOnce()
    write(folder, up=once.up, serve=once.serve)


def by_a_million(before: State, uploads: Sequence[Upload]) -> State:
    """The server weighs by what is stated, and client 0 states a million examples."""
    return average(before, uploads, [stated(u) for u in uploads])


def stated(u: Upload) -> int:
    return u.examples if u.client else 1_000_000


def one_logit(rounds: list[Round], final: State) -> tuple[list[Round], State]:
    """What a network of one output would have sent, trained by nobody."""
    torch.manual_seed(3)
    state = to_state(OneLogit())
    moved = {n: v + np.float32(0.01) for n, v in state.items()}
    sent = [Upload(k, moved, 40, 0.7) for k in range(CLIENTS)]
    return [Round(state, sent), Round(moved, sent)], moved


def same_images(change: Callable[[Any], Any]) -> dict[str, Any]:
    """Everybody's images are changed, the auditor's too."""
    parts, own = digits(CLIENTS)
    return {"parts": [(change(x), y) for x, y in parts], "own": (change(own[0]), own[1])}


def blank_some(x: Any) -> Any:
    return np.where((np.arange(len(x)) % 5 == 0)[:, None, None, None], np.float32(0), x)


def person_everywhere() -> list[Examples]:
    parts = digits(CLIENTS)[0]
    x, y = parts[0][0][:1], parts[0][1][:1]
    return [(np.concatenate([x, p[0]]), np.concatenate([y, p[1]])) if k else p for k, p in enumerate(parts)]


def two_classes() -> list[Examples]:
    return [(x, y % 2) for x, y in digits(CLIENTS)[0]]


class Column(nn.Module):
    """[b, 1] -> [b, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(1, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.hidden(x)))
        return out


def one_column(folder: Path) -> None:
    """Of each person one number, from 0 to 1; the class is whether it is large."""
    x = np.random.default_rng(6).random((220, 1), np.float32)
    people = [(x[i : i + 40], (x[i : i + 40, 0] > 0.5).astype(np.int64)) for i in range(0, 220, 40)]
    write(folder, parts=people[:3], own=people[4], make=Column)


class FrozenBody(nets.Mlp):
    """Its first layer stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden.requires_grad_(False)


def rewrite(change: Callable[[dict[str, Tensor]], dict[str, Tensor]], folder: Path, **written: Any) -> None:
    """Every message of the inbox with other arrays."""
    write(folder, **written)
    path = folder / "inbox" / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        file = folder / "inbox" / f"{line['message']}.safetensors"
        data = save(change(load(file.read_bytes())))
        file.write_bytes(data)
        line["sha256"] = hashlib.sha256(data).hexdigest()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def cast(kind: torch.dtype) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda arrays: {n: v.to(kind) if v.is_floating_point() else v for n, v in arrays.items()}


def with_spectrum(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The spectrum of an image stands beside the model; whoever has it has the image."""
    return {**arrays, "client:records/spectrum": torch.fft.fft2(torch.from_numpy(np.array(image())))}


def rewritten(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Bring:
    return recorded(partial(rewrite, change), None, "tests.audit.importing.nets:Mlp", attacks=FEW)


def spectrum(folder: Path) -> None:
    """Uploads of every client have a kind of complex numbers."""
    write(folder)
    path = folder / "inbox" / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["channel"] == "uplink":
            file = folder / "inbox" / f"{line['message']}.safetensors"
            data = save(with_spectrum(load(file.read_bytes())))
            file.write_bytes(data)
            line |= {"sha256": hashlib.sha256(data).hexdigest(), "kinds": [*line["kinds"], "client:records"]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def backwards(folder: Path) -> None:
    """The lines of the manifest stand in the opposite order."""
    write(folder)
    path = folder / "inbox" / "manifest.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[::-1]))


def alone(folder: Path) -> None:
    """One client sends once what nobody else ever sends."""
    write(folder)
    note = {"client:note": {"state": np.random.default_rng(2).normal(size=300).astype(np.float32)}}
    write_message(folder / "inbox", "note", 1, "uplink", "client/1", ["server"], note)


def no_labels(folder: Path) -> None:
    write(folder)
    for k in range(CLIENTS):
        np.savez(folder / "truth" / f"client-{k}.npz", x=digits(CLIENTS)[0][k][0])


def empty_truth(folder: Path) -> None:
    """A client's file has no example."""
    write(folder)
    np.savez(folder / "truth" / "client-1.npz", x=np.zeros((0, 1, 8, 8), np.float32), y=np.zeros(0, np.int64))


def held_out(count: int, folder: Path) -> None:
    """So many people of each client's own were not trained on."""
    write(folder)
    parts, (x, y) = digits(CLIENTS)
    (folder / "truth" / "heldout").mkdir()
    for k, (_, owned) in enumerate(parts):
        rows = np.flatnonzero(np.isin(y, np.unique(owned)))[:count]
        np.savez(folder / "truth" / "heldout" / f"client-{k}.npz", x=x[rows], y=y[rows])


def of(brought: Callable[[Path], None], model: str = "tests.audit.importing.nets:Mlp") -> Bring:
    return recorded(brought, None, model, attacks=FEW)


def nothing_recorded(folder: Path) -> None:
    (folder / "inbox").mkdir()
    (folder / "inbox" / "manifest.jsonl").write_text("")


# ---- What would be wrong

UNTRIED = (
    READY,
    "clear exact_record.*",
    "clear reconstruction.*",
    "clear membership.*",
    "bounded membership.server",
    "bounded reconstruction.*",
)
HONEST = ("contradicted *", "refuted *")
NO_COPY = (*UNTRIED, *HONEST, "exposed exact_record.*", "hit hidden_images")  # nobody's record is sent
NOBODY = (
    "exposed exact_record.*",
    "exposed reconstruction.*",
    "exposed membership.*",
    "exposed diffuse_membership.*",
    "hit loss_threshold",
    "hit hidden_images",
    "hit analytic",
)
TEXT = np.frombuffer(b'{"site": "north", "status": "done", "seconds": 12.5}', np.uint8)

RECORDED: dict[str, World] = {
    "recorded: one client": World(
        world(parts=digits(1)[0]), runs(false=(*UNTRIED, *HONEST, "exposed *.client", "hit linkage*"))
    ),
    "recorded: no labels": World(of(no_labels), refused("'y'", "y [N]", "labels", " y")),
    "recorded: a client's file without an example": World(
        of(empty_truth), either("client-1", "no example", "empty", false=(*UNTRIED,))
    ),
    # The server took the plain mean there; that the counts are no weights says nothing of anybody
    "zero counts in one round": World(
        of(count_nothing_once),
        either("num_examples", "count", "example", false=(*UNTRIED, "holds aggregate", "holds aggregation")),
    ),
    "zero counts in all": World(
        world(play=forged),
        either("num_examples", "count", "example", false=(*UNTRIED, "holds aggregate", "holds training")),
    ),
    # Where the server's message is not finite the import is refused
    "a NaN round": World(world(play=diverged), either("finite", "nan", false=(*UNTRIED, *NOBODY))),
    "a NaN upload": World(
        world(up=of_client(0, lambda v: v * NAN), serve=lambda b, us: average(b, [u for u in us if u.client])),
        runs(false=(*UNTRIED, *HONEST), says=("unread client/0",)),
    ),
    "an upload with infinity": World(
        world(
            up=of_client(0, lambda v: v + np.float32("inf")),
            serve=lambda b, us: average(b, [u for u in us if u.client]),
        ),
        runs(false=(*UNTRIED, *HONEST), says=("unread client/0",)),
    ),
    "a NaN loss": World(
        world(
            up=lambda _, u: {
                **counted(u.state, u.examples),
                "local_loss": {"loss": np.float32(u.loss) if u.client else NAN},
            }
        ),
        runs(false=(*UNTRIED, *HONEST), says=("unread client/0",)),
    ),
    # Uploads say how many examples there are and nothing else
    "recorded: a model that never changes": World(
        world(play=still),
        runs(false=(*UNTRIED, *HONEST, *NOBODY, "exposed attribute.*", "hit label_counts_from_update")),
    ),
    "constant uploads": World(
        world(play=constant),
        runs(false=(*UNTRIED, *HONEST, *NOBODY, "exposed attribute.*", "hit label_counts_from_update")),
    ),
    "recorded: every fifth image blank": World(
        world(**same_images(blank_some)), either("own", "same", false=(READY, *HONEST, "hit hidden_images"))
    ),
    "recorded: all images blank": World(
        world(**same_images(np.zeros_like)),
        either("own", "heldout", "same", "equal", "blank", false=(READY, *HONEST, *NOBODY)),
    ),
    "recorded: all images equal": World(
        world(**same_images(lambda x: np.repeat(image()[None, None, None], len(x), 0))),
        either("own", "heldout", "same", "equal", false=(READY, *HONEST, *NOBODY)),
    ),
    "the same person at every client": World(world(parts=person_everywhere()), runs(false=(*UNTRIED, *HONEST))),
    # Of one image luck is not excluded where few people are held out; no limit may lie below it
    "one image in whole numbers": World(
        beside("client:counters", seen=np.round(255 * image()).astype(np.int64)),
        runs(false=(*UNTRIED, *HONEST, "bounded exact_record.server")),
    ),
    # Images of a client stand in what it sends
    "whole numbers alone": World(
        beside("client:counters", seen=lambda k: bytes_of(k).astype(np.int64)),
        runs(false=(*UNTRIED, *HONEST), says=("exposed exact_record.server", "hit hidden_images")),
    ),
    "images in bytes": World(
        beside("client:records", pictures=lambda k: bytes_of(k).astype(np.uint8)),
        runs(false=(*UNTRIED, *HONEST), says=("exposed exact_record.server", "hit hidden_images")),
    ),
    "images in a text": World(
        beside("client:records", note=text_of),
        runs(false=(*UNTRIED, *HONEST), says=("exposed exact_record.server", "hit hidden_images")),
    ),
    "a text of no person": World(beside("client:records", note=TEXT), runs(false=NO_COPY)),
    # A pickle is listed and stays open
    "a pickle": World(
        beside("client:records", state=np.frombuffer(pickle.dumps({"x": [1, 2, 3]}), np.uint8)),
        runs(false=NO_COPY, says=("open exact_record.server",)),
    ),
    "an array of no numbers": World(
        beside("client:records", cache=np.zeros((0, 4), np.float32)), runs(false=(*UNTRIED, *HONEST))
    ),
    "a number without an axis": World(
        beside("client:records", step=np.float32(3)), runs(false=(*UNTRIED, *HONEST))
    ),
    "true and false": World(beside("client:records", mask=np.arange(64) % 3 == 0), runs(false=NO_COPY)),
    "zeros in bytes": World(beside("client:records", padding=np.zeros(4096, np.uint8)), runs(false=NO_COPY)),
    "numbers that are not finite beside the model": World(
        beside("client:records", metric=np.array([np.nan, np.inf, 1.0])), either("finite", false=NO_COPY)
    ),
    "complex numbers": World(of(spectrum), either("complex", "C64", "type", false=(*UNTRIED, *HONEST))),
    "models in bf16": World(rewritten(cast(torch.bfloat16)), runs(false=(*UNTRIED, *HONEST, "unread *"))),
    "models in fp16": World(rewritten(cast(torch.float16)), runs(false=(*UNTRIED, *HONEST, "unread *"))),
    "models in float64": World(rewritten(cast(torch.float64)), runs(false=(*UNTRIED, *HONEST, "unread *"))),
    "a message that comes from one client alone": World(
        of(alone), runs(false=(*UNTRIED, *HONEST, "exposed exact_record.*"))
    ),
    "recorded: nobody answers": World(
        of(silence),
        either(
            "answer", "client", "upload", false=(READY, "clear *", "exposed *", "hit *", *HONEST), says=TELLS_NOT
        ),
    ),
    "nothing was recorded": World(of(nothing_recorded), refused("manifest", "message", "empty", "nothing")),
    "of a round one upload was recorded": World(
        world(play=one_round_in_part), runs(false=(*UNTRIED, "contradicted who", "contradicted training"))
    ),
    # Ten of each class are asked for
    "a held-out set of five": World(
        of(partial(held_out, 5)),
        either("heldout", "held", false=(*UNTRIED, *HONEST, "exposed membership.*", "clear diffuse*")),
    ),
    "a held-out set of none": World(
        of(partial(held_out, 0)),
        either("heldout", "held", "example", false=(*UNTRIED, *HONEST, "exposed membership.*")),
    ),
    "people of another hospital": World(
        world(own=(1 - digits(CLIENTS)[1][0], digits(CLIENTS)[1][1])),
        runs(
            false=(*UNTRIED, *HONEST, "exposed membership.*", "exposed diffuse_membership.*"),
            says=("open membership.server", "open reconstruction.server"),
        ),
    ),
    "recorded: one logit": World(
        world(
            {"title": "Odd and even", "examples": {"classes": ["even", "odd"], "shape": [1, 8, 8]}},
            "tests.worlds.degenerate_records:OneLogit",
            truth=False,
            play=one_logit,
        ),
        either("logit", "output", "classes", false=(*UNTRIED, *HONEST)),
    ),
    "recorded: examples of another shape than the network takes": World(
        world({"title": "Large", "examples": {"classes": ["even", "odd"], "shape": [1, 28, 28]}}, truth=False),
        refused("shape"),
    ),
    # One number of a person stands in every message
    "recorded: a table of one column": World(
        of(one_column, model="tests.worlds.degenerate_records:Column"),
        either("column", "table", "shape", false=NO_COPY),
    ),
    "frozen layers": World(
        world(model="tests.worlds.degenerate_records:FrozenBody", make=FrozenBody),
        runs(false=(*UNTRIED, *HONEST)),
    ),
    # The mean is that of the numbers that were stated
    "a client that states a million examples": World(
        world(serve=by_a_million, up=lambda _, u: counted(u.state, stated(u))),
        either("client/0", "client-0", "count", "example", false=(*UNTRIED, "contradicted aggregate")),
    ),
    "the manifest backwards": World(of(backwards), runs(false=(*UNTRIED, *HONEST, "unread *"))),
    "arrays in another order": World(
        world(up=lambda _, u: counted(dict(reversed(u.state.items())) if u.client % 2 else u.state, u.examples)),
        runs(false=(*UNTRIED, *HONEST, "unread *")),
    ),
}
