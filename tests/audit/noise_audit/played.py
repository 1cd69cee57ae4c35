"""The noise of protections, read off messages that say nothing: what arrives is what was sent and the noise.

Messages pass the run's own wire, with its streams, over rounds and clients. They have a model's change of zero,
whole numbers that stay, and counts so large that no floor touches them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from fedaudit.audit.noise_audit.noise_samples import NoiseSample
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Payload, Protection, anew
from fedaudit.fl.wire.wire import Wire

ROUNDS, CLIENTS = 12, 6
COUNT = 1000
COUNTED = ("counts", "count")


@dataclass(frozen=True)
class Card:
    """What the wire reads of a method's card."""

    title: str = "A method"
    uplink: tuple[Kind, ...] = (Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS)


def message() -> Message:
    """One of every kind that protections of this project act on."""
    classes = torch.arange(5)
    return {
        Kind.LOCAL_MODEL: {
            "body.weight": torch.zeros((40, 12)),
            "body.bias": torch.zeros(40),
            "norm.batches": torch.tensor(7),
            "head.weight": torch.zeros((5, 40)),
            "head.bias": torch.zeros(5),
        },
        Kind.NUM_EXAMPLES: {"count": torch.tensor(COUNT)},
        Kind.LOCAL_PROTOTYPES: {"classes": classes, "features": torch.zeros((5, 40))},
        Kind.PROTO_COUNTS: {"classes": classes, "counts": torch.full((5,), COUNT)},
    }


def play(
    protections: Sequence[Protection],
    seed: int = 3,
    *,
    rounds: int = ROUNDS,
    clients: int = CLIENTS,
    change: Callable[[Message], Message] = lambda m: m,
    length: float = 0.0,
) -> list[NoiseSample]:
    """All noise of so many rounds, in the order in which it was drawn.

    Messages say nothing, or have a change of their own of about that length, below every clip.
    """
    noise: list[tuple[int, int, Kind, str, Tensor, Tensor]] = []
    still = change(message())
    rng = torch.Generator().manual_seed(1)
    with TemporaryDirectory() as folder:
        ledger = Log(Path(folder) / "ledger.jsonl")
        wire = Wire(Card(), Streams(seed), anew(protections), None, ledger, lambda _: Drawn())
        for t in range(rounds):
            for k in range(clients):
                sent = {kind: _moved(payload, length, rng) for kind, payload in still.items()}
                given = {kind: dict(payload) for kind, payload in sent.items()}
                came = wire.uplink(t, given, k, {Kind.GLOBAL_MODEL: still[Kind.LOCAL_MODEL]})
                assert came is not None
                noise += [(t, k, kind, *x) for kind in still for x in _difference(came[kind], sent[kind])]
            if any(p.central for p in protections):
                model = still[Kind.LOCAL_MODEL]
                came_back = wire.average(t, dict(model), dict(model), (clients // 2, clients, 0)[t % 3], clients)
                noise += [(t, -1, Kind.GLOBAL_MODEL, *x) for x in _difference(came_back, model)]
            wire.end_round(t)
        ledger.close()
        lines = read(ledger.path)
    return _samples(noise, lines)


def _moved(payload: Payload, length: float, rng: torch.Generator) -> Payload:
    numbers = sum(v.numel() for v in payload.values() if v.is_floating_point())
    share = length / max(1, numbers) ** 0.5 * float(0.5 + torch.rand((), generator=rng))
    return {
        k: v + torch.randn(v.shape, generator=rng) * share if v.is_floating_point() else v
        for k, v in payload.items()
    }


def _difference(came: Payload, sent: Payload) -> list[tuple[str, Tensor, Tensor]]:
    names = [k for k in sent if sent[k].is_floating_point()] or [k for k in COUNTED if k in sent]
    return [(k, came[k].double() - sent[k].double(), sent[k].double()) for k in names]


def _samples(noise: list[tuple[int, int, Kind, str, Tensor, Tensor]], lines: list[Release]) -> list[NoiseSample]:
    """With the line of each message; where it has none, with the first line of its kind."""
    first: dict[str, Release] = {}
    own: dict[tuple[str, int, str], Release] = {}
    for line in lines:
        if line.mechanism != "none" and line.noise_std > 0:
            first.setdefault(line.kind, line)
            own.setdefault((line.kind, line.round, line.sender), line)
    found = []
    for t, k, kind, name, values, clean in noise:
        sender = f"client/{k}" if k >= 0 else "client/*"
        if kind in first:
            line = own.get((kind, t, sender)) or replace(first[kind], round=t, sender=sender)
            found.append(NoiseSample(line, name, values.flatten().numpy(), clean.flatten().numpy()))
    return found
