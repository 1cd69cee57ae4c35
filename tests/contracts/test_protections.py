"""Every protection: the same bytes and releases from the same stream, and the message given stays as it was.

Where one adds noise, a client whose training diverged sends what looks like any other message.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.tap import AddNoise, MessageTap, Payload, listening
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import finite
from fedaudit.fl.wire.protection import Message, Protection
from fedaudit.fl.wire.wire import Wire
from tests.fl.protections.sends import PROTOTYPES, send

NAMES = catalog.names("protections")
MODEL: Message = {Kind.LOCAL_MODEL: {"w": torch.linspace(-3, 3, 40).reshape(8, 5), "b": torch.ones(5)}}
MESSAGE: Message = {**PROTOTYPES, **MODEL}
REFERENCE: Message = {Kind.GLOBAL_MODEL: {"w": torch.zeros(8, 5), "b": torch.zeros(5)}}
# what has no default that works
GIVEN: dict[str, dict[str, Any]] = {"laplace": {"kinds": ["local_prototypes"]}}


def made(name: str) -> Protection:
    return configure(catalog.load("protections", name), GIVEN.get(name, {}), "protections[0]")


def sent(name: str, seed: int = 0) -> tuple[Message, list[Release]]:
    return send(made(name), MESSAGE, REFERENCE, seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_stream_gives_the_same_bytes_and_releases(name: str) -> None:
    (first, lines), (again, others) = sent(name), sent(name)
    assert lines == others and list(first) == list(again)
    for kind, payload in first.items():
        assert list(payload) == list(again[kind])
        for array, value in payload.items():
            assert value.numpy().tobytes() == again[kind][array].numpy().tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_message_given_is_left_as_it_was(name: str) -> None:
    before = {k: {n: v.clone() for n, v in p.items()} for k, p in MESSAGE.items()}
    sent(name)
    assert all(torch.equal(v, before[k][n]) for k, p in MESSAGE.items() for n, v in p.items())


# A client whose training diverged -------------------------------------------------------------------------

BATCH: Message = {Kind.SMASHED: {"activations": torch.linspace(-3, 3, 24).reshape(4, 6)}}
# the last one is finite, and its change from the model received is not
DIVERGED = (math.nan, math.inf, -math.inf, torch.finfo(torch.float32).max)
# dp_sgd adds noise while clients train: tests/fl/protections/test_dp_sgd.py
NOISING = [n for n in NAMES if made(n).strength in ("noise_multiplier", "scale") and made(n).training() is None]


@dataclass(frozen=True)
class Everything:
    """The card of a method whose clients send what any protection acts on."""

    title: str = "everything"
    uplink: tuple[Kind, ...] = (*MESSAGE, *BATCH)


@dataclass
class ClipTap(MessageTap):
    """Hears what gets noise, and the lines of it."""

    clean: list[tuple[Release, Payload]] = field(default_factory=list)
    entered: list[Release] = field(default_factory=list)

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        self.clean.append((line, {name: value.clone() for name, value in clean.items()}))
        return add(clean)

    def enter(self, line: Release) -> None:
        self.entered.append(line)


def upload(name: str, message: Message, tap: MessageTap) -> Message | None:
    """What the server reads of a message, through the whole wire; the model it began with is far from 0."""
    start = {k: {n: v - 1e32 for n, v in p.items()} for k, p in REFERENCE.items()}
    with listening(tap):
        return Wire(Everything(), Streams(7), [made(name)]).uplink(3, message, 5, start)


def list_noised_kinds(name: str) -> list[Kind]:
    """Kinds that get noise as they are sent, or whose mean does."""
    tap = ClipTap()
    upload(name, MESSAGE | BATCH, tap)
    central = [Kind.LOCAL_MODEL] if made(name).central else []
    return [*dict.fromkeys(Kind(line.kind) for line, _ in tap.clean), *central]


NOISED = [(name, kind) for name in NOISING for kind in list_noised_kinds(name)]


@pytest.mark.parametrize(("name", "kind"), NOISED, ids=lambda value: str(value))
@pytest.mark.parametrize("bad", DIVERGED, ids=str)
def test_that_a_client_diverged_is_as_private_as_what_it_sends(name: str, kind: Kind, bad: float) -> None:
    payload = {n: v.clone() for n, v in (MESSAGE | BATCH)[kind].items()}
    array = next(n for n, v in payload.items() if v.is_floating_point() or n == kind.counted)
    counts = not payload[array].is_floating_point()
    payload[array].view(-1)[1 if payload[array].numel() > 1 else 0] = -3 if counts else bad
    tap = ClipTap()
    received = upload(name, MESSAGE | BATCH | {kind: payload}, tap)
    assert received is not None and all(finite(p) for p in received.values())
    noised = [line for line in tap.entered if line.mechanism != "none"]
    assert all("what is not finite counts as no change" in line.clipped for line in noised)
    for line, clean in tap.clean:
        assert finite(clean)
        if line.unit == "client":
            order = 1 if line.mechanism == "laplace" else 2
            reach = sum(float(v.double().abs().pow(order).sum()) for v in clean.values()) ** (1 / order)
            assert reach <= (line.sensitivity or 0.0) * 1.001
        if line.mechanism == "discrete_laplace":
            assert all(bool((v >= 0).all()) for v in clean.values())


@pytest.mark.parametrize("bad", DIVERGED[:3], ids=str)
def test_without_noise_the_server_still_rejects_what_is_not_finite(bad: float) -> None:
    broken = {Kind.LOCAL_MODEL: {"w": torch.full((8, 5), bad), "b": torch.ones(5)}}
    for name in ("quantise", "withhold"):
        assert upload(name, broken, MessageTap()) is None
