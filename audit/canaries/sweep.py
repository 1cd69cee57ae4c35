"""A sweep: still messages in the run's own shape, over its rounds and clients, and the noise on each.

A message that says nothing leaves the wire as its noise alone. Every noised kind gives an array
[messages, numbers] in units of what the ledger declares of that very message, mapped to a standard normal
law by the declared distribution (exactly: whole numbers by a uniform step, Rosenblatt 1952), so that one set
of tests serves every mechanism. Noise that the server adds to a mean gives one row a round.

The cost is bounded: so many numbers drawn and so many messages. Where the run has more, all its rounds
and clients are still visited as far as messages go, and the text says how many were.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.audit.canaries.payload import COUNTED, Passage, Shape
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Mechanism, Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Payload, Protection

Floats = NDArray[np.float64]
ADDITIVE = ("gaussian", "laplace", "discrete_laplace")
MOST_NUMBERS = 12_000_000  # drawn in one sweep
MOST_KEPT = 6_000_000  # of one kind
MOST_MESSAGES, FEWEST_MESSAGES = 600, 12
BLOCK = 16  # neighbouring numbers that are kept together


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise on one kind. `z` is standard normal if the ledger is right."""

    kind: Kind
    z: Floats  # [messages, n]
    read: Floats  # [messages, n] the noise in units of the ledger's scale
    rounds: NDArray[np.int64]  # [messages]
    clients: NDArray[np.int64]  # [messages]; -1 where the server noised
    arrays: NDArray[np.int64]  # [n] which array a number stands in
    names: tuple[str, ...]  # of the arrays
    declared: Release  # of the first message
    whole: bool  # every number was kept

    @property
    def mechanism(self) -> Mechanism:
        return self.declared.mechanism


@dataclass(frozen=True, kw_only=True)
class Sweep:
    noises: tuple[Noise, ...]
    unlisted: tuple[str, ...]  # what left the wire and stands nowhere in the ledger
    text: str  # how far it went

    def of(self, kind: Kind) -> Noise | None:
        return next((n for n in self.noises if n.kind == kind), None)


def sweep(shape: Shape, protections: Sequence[Protection], streams: Streams, most: int = MOST_MESSAGES) -> Sweep:
    """Every noised kind of the run's messages; of central noise, the model."""
    central = any(p.central for p in protections)
    kinds = [Kind.GLOBAL_MODEL] if central else list(shape.message)
    noised = [Kind.LOCAL_MODEL] if central else noised_kinds(shape, protections, streams)
    numbers = shape.numbers(list(dict.fromkeys(noised)))
    many = int(np.clip(MOST_NUMBERS // max(1, numbers), FEWEST_MESSAGES, most))
    where = places(shape.rounds, 1 if central else shape.clients, many, streams.numpy("places"))
    where = [(t, -1) for t, _ in where] if central else where
    passage = Passage(shape, protections, streams)
    rng = streams.numpy("sweep")
    rows: dict[Kind, list[Floats]] = {}
    picked: dict[Kind, NDArray[np.int64]] = {}
    sent, came = shape.still()[0], Message()
    for number, (t, k) in enumerate(where):
        came = still(shape, passage, t, k, number)
        for kind in kinds:
            flat = flattened(kind, came[kind], sent.get(kind, {}))
            if kind not in picked:
                picked[kind] = _picked(len(flat), len(where), rng)
            rows.setdefault(kind, []).append(flat[picked[kind]])
    ledger = passage.close()
    by_place = _by_place(ledger)
    noises = []
    for kind in kinds:
        said = [by_place.get((kind.value, t, k)) for t, k in where]
        listed = [r for r in said if r is not None]
        if not listed or listed[0].mechanism not in ADDITIVE:
            continue
        # a message without a line of its own claims what the first one does
        hidden = any(p.hides_single_uploads() for p in protections)
        scales = np.array([share(r or listed[0], hidden) for r in said])
        read = np.stack(rows[kind]) / scales[:, None]
        noises.append(
            Noise(
                kind=kind,
                z=normal(read, listed[0].mechanism, scales, rng),
                read=read,
                rounds=np.array([t for t, _ in where]),
                clients=np.array([k for _, k in where]),
                arrays=_arrays(kind, came[kind])[picked[kind]],
                names=tuple(noised_arrays(kind, came[kind])),
                declared=listed[0],
                whole=len(picked[kind]) == len(flattened(kind, came[kind], {})),
            )
        )
    missing = () if central else _unlisted(ledger, sent, came, {n.kind for n in noises})
    fixed = _fixed(shape, protections, streams, [m for m in missing if "." in m]) if missing else set()
    missing = tuple(m for m in missing if m not in fixed)
    return Sweep(noises=tuple(noises), unlisted=missing, text=_text(shape, where, numbers, central))


def still(shape: Shape, passage: Passage, round: int, client: int, number: int = 0) -> Message:
    """A still message as it arrives; of client -1 the model of a round in which nobody sent anything new.

    By `number`, half of the clients answered, or all, or nobody.
    """
    if client >= 0:
        return passage.send(round, client, *shape.still())
    model = {k: torch.zeros_like(v) for k, v in shape.message[Kind.LOCAL_MODEL].items()}
    delivered = (max(1, shape.clients // 2), shape.clients, 0)[number % 3]
    return {Kind.GLOBAL_MODEL: passage.average(round, model, model, delivered)}


def noised_kinds(shape: Shape, protections: Sequence[Protection], streams: Streams) -> list[Kind]:
    """The kinds of the ledger's noised lines of one message, once a line; of central noise, the model."""
    passage = Passage(shape, protections, streams)
    for client in (0, -1) if any(p.central for p in protections) else (0,):
        still(shape, passage, 0, client)
    return [Kind(r.kind) for r in passage.close() if r.mechanism in ADDITIVE and r.noise_std > 0]


def share(said: Release, hidden: bool) -> float:
    """The scale of the noise on one message: of noise that is counted for a sum, and read in one, a part."""
    if hidden and said.mechanism == "gaussian" and said.shared:
        return said.noise_std / math.sqrt(said.aggregated)
    return said.noise_std


def places(rounds: int, clients: int, most: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Rounds and clients of at most about `most` messages: all, or spread evenly over both."""
    chosen = np.unique(np.linspace(0, rounds - 1, min(rounds, most)).round().astype(int))
    passes = min(clients, max(1, most // len(chosen)))
    order = rng.permutation(clients)
    return [(int(t), int(order[(i + c) % clients])) for c in range(passes) for i, t in enumerate(chosen)]


def noised_arrays(kind: Kind, payload: Payload) -> dict[str, Tensor]:
    """The arrays that noise can be on, by name: floating-point numbers, or counts."""
    floats = {k: v for k, v in sorted(payload.items()) if v.is_floating_point()}
    return floats or {k: payload[k] for k in COUNTED if k in payload}


def flattened(kind: Kind, payload: Payload, base: Payload) -> Floats:
    """[n] the noised numbers of a payload, less those of a base."""
    parts = [
        v.detach().double().flatten() - (base[k].double().flatten() if k in base else 0.0)
        for k, v in noised_arrays(kind, payload).items()
    ]
    return np.asarray(torch.cat(parts).numpy()) if parts else np.zeros(0)


def normal(read: Floats, mechanism: Mechanism, scales: Floats, rng: np.random.Generator) -> Floats:
    """Noise in units of its scale as standard normal numbers, if it has the declared distribution."""
    from scipy import stats

    if mechanism == "gaussian":
        return read
    if mechanism == "laplace":
        upper = 0.5 * np.exp(-np.abs(read))
    else:
        whole = np.abs(np.round(read * scales[:, None]))
        a = np.exp(-1 / scales)[:, None]
        above = a**whole / (1 + a)  # P[X >= x], for x >= 0
        mass = (1 - a) / (1 + a) * a**whole
        upper = np.where(whole > 0, above - rng.random(read.shape) * mass, 0.0)
        signs = np.where(whole > 0, np.sign(read), 1.0)
        middle = 0.5 + (rng.random(read.shape) - 0.5) * mass
        quantile = stats.norm.isf(np.where(whole > 0, np.clip(upper, 1e-300, 1), middle))
        return np.asarray(signs * quantile)
    return np.asarray(np.sign(read) * stats.norm.isf(np.clip(upper, 1e-300, 0.5)))


def _by_place(ledger: Sequence[Release]) -> dict[tuple[str, int, int], Release]:
    """The first noised line of each kind, round and client; -1 for lines of all clients."""
    found: dict[tuple[str, int, int], Release] = {}
    for r in ledger:
        if r.mechanism != "none" and r.noise_std > 0:
            index = r.sender.partition("/")[2]
            found.setdefault((r.kind, r.round, int(index) if index.isdecimal() else -1), r)
    return found


def _unlisted(ledger: Sequence[Release], sent: Message, came: Message, noised: set[Kind]) -> tuple[str, ...]:
    """Kinds and arrays of the last message that no line of the ledger names."""
    lines = {r.kind for r in ledger}
    missing = []
    for kind, payload in came.items():
        if kind.value not in lines and not any(line.startswith(f"{kind}.") for line in lines):
            missing.append(kind.value)
        elif kind in noised:
            beside = set(payload) - set(noised_arrays(kind, payload))
            beside |= set(payload) - set(sent.get(kind, {}))  # what the protection put there
            missing += [f"{kind}.{name}" for name in sorted(beside) if f"{kind}.{name}" not in lines]
    return tuple(missing)


def _fixed(shape: Shape, protections: Sequence[Protection], streams: Streams, names: Sequence[str]) -> set[str]:
    """Arrays beside the noise that leave as the same whole numbers whatever a client put there: no data."""
    sent, reference = shape.still()
    emptied = {
        kind: {k: v if v.is_floating_point() or k in COUNTED else torch.zeros_like(v) for k, v in payload.items()}
        for kind, payload in sent.items()
    }
    try:
        ours, other = (
            Passage(shape, protections, streams, listed=False).send(0, 0, m, reference) for m in (sent, emptied)
        )
    except Exception:  # other people's code, which may refuse such a message
        return set()
    found = set()
    for name in names:
        kind, _, array = name.partition(".")
        before, after, put = (m[Kind(kind)].get(array) for m in (ours, other, emptied))
        changed = put is not None and not torch.equal(put, sent[Kind(kind)][array])
        if before is None or after is None or before.is_floating_point():
            continue
        if changed and torch.equal(before, after):
            found.add(name)
    return found


def _picked(numbers: int, messages: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which numbers are kept: all, or blocks of neighbours drawn at random."""
    most = MOST_KEPT // max(1, messages)
    if numbers <= most:
        return np.arange(numbers)
    starts = np.sort(rng.choice(numbers // BLOCK, most // BLOCK, replace=False)) * BLOCK
    return np.asarray((starts[:, None] + np.arange(BLOCK)).ravel())


def _arrays(kind: Kind, payload: Payload) -> NDArray[np.int64]:
    sizes = [v.numel() for v in noised_arrays(kind, payload).values()]
    return np.repeat(np.arange(len(sizes)), sizes)


def _text(shape: Shape, where: Sequence[tuple[int, int]], numbers: int, central: bool) -> str:
    rounds = f"{len({t for t, _ in where}):,} of {shape.rounds:,} rounds"
    if central:
        return f"{len(where):,} means of {numbers:,} numbers each, in {rounds}"
    clients = f"{len({k for _, k in where}):,} of {shape.clients:,} clients"
    return f"{len(where):,} messages of {numbers:,} numbers each, in {rounds} and from {clients}"
