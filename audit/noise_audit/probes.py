"""What is played other than the federation's own: worst-case messages, measurements and data of clients.

Real neighbours move a correct release by half of what is declared; a message far beyond the clip moves it by all
of it. Messages are put in before the protections, relative to what they are a change from, and keep their shapes
and masks; only kinds that the ledger credits with noise are touched. Data teach everything or nothing, are few or
many, or of one record less.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedaudit.fl.artifact import Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import MODELS, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.recording.tap import Message, Payload
from fedaudit.fl.runtime.streams import Streams

CALCULATED = ("gaussian", "laplace", "discrete_laplace")  # noise whose sensitivity is a norm
FAR = 1e4  # times the clip: whatever bounds a message binds here
NEAR = tuple(0.3 * 1.065**i for i in range(48))  # to 5.8 times the clip: where a soft clip overshoots
MANY = 10_000_000  # examples of one class
MASK = 4.0  # on every number of a share
CALM = 1e-3  # a loss, or seconds
BRIGHT = 1e3  # times an image: its gradient is longer than any clip
FEW = 2  # examples that a client is left with
COPIES = 4  # times that each of a client's examples is held
Direction = Callable[[int, Payload], Payload]  # (round, arrays) -> arrays


class Probe:
    """What is played other than the federation's own: nothing."""

    def choose_cohort(self, round: int, answering: tuple[int, ...]) -> tuple[int, ...]:
        """Who takes part."""
        return answering

    def measure(self, round: int, client: int, value: float) -> float:
        """What is measured of a client's training."""
        return value

    def replace_message(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        """What a client sends, before its protections."""
        return message

    def mask(self, payload: Payload, number: int, of: int) -> Payload:
        """What stands for the share of the `number`th of a round's senders, whose sum alone is read."""
        return payload

    @property
    def rounding(self) -> float:
        """How far values may be apart that follow from the same sums."""
        return 0.0


def fill_evenly(round: int, arrays: Payload) -> Payload:  # noqa: ARG001
    """all numbers alike"""
    return {name: torch.ones_like(value) for name, value in arrays.items()}


def alternate_signs(round: int, arrays: Payload) -> Payload:
    """signs changing from number to number"""
    return {name: _draw_signs(value, round) for name, value in arrays.items()}


def fill_one_array(round: int, arrays: Payload) -> Payload:
    """one array at a time"""
    chosen = sorted(arrays)[round % len(arrays)] if arrays else ""
    return {name: torch.full_like(value, float(name == chosen)) for name, value in arrays.items()}


def repeat_moves(moves: Mapping[int, Payload]) -> Direction:
    """What a release moved by in a play before, round by round: where it moves most, it moves more each time."""

    def repeat(round: int, arrays: Payload) -> Payload:
        moved = moves.get(round, {})
        if any(name not in moved or moved[name].shape != value.shape for name, value in arrays.items()):
            return fill_evenly(round, arrays)
        return {name: moved[name] for name in arrays}

    return repeat


def fill_arrays_alike(round: int, arrays: Payload) -> Payload:  # noqa: ARG001
    """all arrays of one norm"""
    return {name: torch.ones_like(value) / max(1, value.numel()) ** 0.5 for name, value in arrays.items()}


@dataclass(frozen=True)
class Sent:
    """What a client sends: so many times the clip along a direction, round by round and again; 0 is nothing.

    With `follows` the direction is that in which the shared model last moved, from the second round on.
    """

    reach: tuple[float, ...]
    direction: Direction = fill_evenly
    follows: bool = False

    def negate(self) -> "Sent":
        return replace(self, reach=tuple(-r for r in self.reach))


NOTHING = Sent((0.0,))


@dataclass
class Messages(Probe):
    """`sent` is by client; messages of those who are not in it stay as they are."""

    clips: Mapping[Kind, float]
    sent: Mapping[int, Sent]
    cohorts: Callable[[int, tuple[int, ...]], Collection[int]] = field(default=lambda _, answering: answering)
    _models: dict[int, Payload] = field(default_factory=dict)  # round -> the shared model that it began with

    def choose_cohort(self, round: int, answering: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(self.cohorts(round, answering)))

    def replace_message(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        if model := reference.get(Kind.GLOBAL_MODEL):
            self._models.setdefault(round, {name: value.clone() for name, value in model.items()})
            self._models.pop(round - 2, None)
        sent = self.sent.get(-1 if sender.index is None else sender.index)
        if sent is None:
            return message
        return {
            kind: self._replace_payload(kind, payload, reference, sent, round) if kind in self.clips else payload
            for kind, payload in message.items()
        }

    def _replace_payload(
        self, kind: Kind, payload: Payload, reference: Message, sent: Sent, round: int
    ) -> Payload:
        reach = sent.reach[round % len(sent.reach)]
        changed = dict(payload)
        if kind.counted:
            counts = torch.zeros_like(payload[kind.counted])
            if reach > 0 and counts.numel():
                counts.view(-1)[0] = MANY
            changed[kind.counted] = counts
        base = reference.get(Kind.GLOBAL_MODEL, {}) if kind in MODELS else {}
        arrays = {k: v for k, v in payload.items() if v.is_floating_point() and k != kind.counted}
        along = self._follow(round, arrays, sent) if reach else {}
        norm = float(sum(float(v.double().square().sum()) for v in along.values())) ** 0.5
        for name, value in arrays.items():
            start = base.get(name, torch.zeros_like(value))
            moved = along[name] * (reach * self.clips[kind] / norm) if norm else torch.zeros_like(value)
            changed[name] = start + moved.to(value.dtype)
        return Coded(changed, payload.size, payload.masks) if isinstance(payload, Coded) else changed

    def _follow(self, round: int, arrays: Payload, sent: Sent) -> Payload:
        now, before = (self._models.get(t, {}) for t in (round, round - 1))
        if not sent.follows or not all(name in before for name in arrays):
            return sent.direction(round, arrays)
        moved = {name: now[name] - before[name] for name in arrays}
        return moved if any(v.any() for v in moved.values()) else sent.direction(round, arrays)


@dataclass
class Measurements(Probe):
    """A client whose loss and time are measured as `start`, and grow or fall `factor` times a round.

    Those of others are next to nothing, so that sums and means follow it.
    """

    client: int
    factor: float
    start: float = 1.0

    def measure(self, round: int, client: int, value: float) -> float:
        return self.start * self.factor**round if client == self.client else CALM


class Masks(Probe):
    """Shares with masks that cancel in the sum, as secure aggregation has them: nobody may see a difference."""

    def mask(self, payload: Payload, number: int, of: int) -> Payload:
        sign = 0.0 if number == of - 1 and of % 2 else 1.0 - 2.0 * (number % 2)
        return {k: v + sign * MASK if v.is_floating_point() else v for k, v in payload.items()}

    @property
    def rounding(self) -> float:
        return MASK * 2.0**-16


def find_clips(lines: Sequence[Release], central: bool) -> dict[Kind, float]:
    """The kinds that clients send and the ledger credits with noise for a whole client, and their clips."""
    clips: dict[Kind, float] = {}
    for line in lines:
        if line.unit != "client" or line.mechanism not in CALCULATED or not line.sensitivity:
            continue
        reach = line.clip_norm or line.sensitivity
        if line.sender.endswith("/*"):
            if central:
                clips[Kind.LOCAL_MODEL] = reach * line.aggregated
        elif line.kind in set(Kind):
            clips[Kind(line.kind)] = reach
    return clips


def _draw_signs(value: torch.Tensor, round: int) -> torch.Tensor:
    places = torch.arange(value.numel()) + round
    return (1.0 - 2.0 * (places % 2)).to(value.dtype).view(value.shape)


# Neighbouring data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Neighbour:
    """A federation on neighbouring data: what is changed."""

    name: str
    touched: frozenset[int] = frozenset()  # clients whose data are changed: others need not be trained again
    data: Callable[[Data], Data] = lambda data: data
    parts: Callable[[list[Index]], list[Index]] = lambda parts: parts


SAME = Neighbour("the same data")


def make_easy_data(rows: Mapping[int, Index]) -> Neighbour:
    """Clients whose images are all black and of one class: they learn everything at once."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        return _with_rows(data, own, np.zeros_like(data.train.x[own]), np.zeros_like(data.train.y[own]))

    return Neighbour(f"all examples of {_name_clients(rows)} black, of one class", frozenset(rows), data=change)


def make_hard_data(rows: Mapping[int, Index], streams: Streams) -> Neighbour:
    """Clients whose images are noise and whose labels mean nothing: they learn nothing."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        rng, x = streams.numpy("noise_audit", "hard"), data.train.x[own]
        drawn = rng.random(x.shape) if x.dtype.kind == "f" else rng.permutation(x.reshape(-1)).reshape(x.shape)
        return _with_rows(data, own, drawn.astype(x.dtype), rng.integers(0, len(data.classes), len(own)))

    return Neighbour(f"all examples of {_name_clients(rows)} noise, of any class", frozenset(rows), data=change)


def make_borrowed_data(own: Index, client: int, others: Index) -> Neighbour:
    """A client that holds copies of what others hold: nobody's work may depend on who else has an example."""

    def change(data: Data) -> Data:
        taken = others[np.arange(len(own)) % len(others)]
        return _with_rows(data, own, data.train.x[taken], data.train.y[taken])

    return Neighbour(
        f"all examples of client {client} copies of what others hold", frozenset({client}), data=change
    )


def make_few_examples(client: int) -> Neighbour:
    """A client with a few examples only: what it sends must not tell how many it holds."""

    def change(parts: list[Index]) -> list[Index]:
        return [part[:FEW] if k == client else part for k, part in enumerate(parts)]

    return Neighbour(f"all but {FEW} examples of client {client} taken away", frozenset({client}), parts=change)


def make_many_examples(client: int) -> Neighbour:
    """A client that holds each of its examples many times: it is the largest and the slowest of all."""

    def change(parts: list[Index]) -> list[Index]:
        return [np.tile(part, COPIES) if k == client else part for k, part in enumerate(parts)]

    return Neighbour(f"{COPIES} times as many examples of client {client}", frozenset({client}), parts=change)


def make_fewer_examples(rows: Mapping[int, Index], labels: Index, left_out: Mapping[int, int]) -> Neighbour:
    """Clients without so many of their examples, those of their largest classes first."""
    gone = {}
    for client, own in rows.items():
        sizes = np.bincount(labels[own])
        order = sorted(own.tolist(), key=lambda row: (-sizes[labels[row]], labels[row], row))
        gone[client] = set(order[: left_out[client]])

    counts = ", ".join(str(n) for n in left_out.values())
    return _drop_rows(f"{_name_clients(rows)} without {counts} examples", gone)


def remove_record(record: Sequence[tuple[int, int]]) -> Neighbour:
    """One record less with everybody who holds it: `record` are pairs of client and row of the training set."""
    held = {client: {row for c, row in record if c == client} for client, _ in record}

    return _drop_rows(f"one record less, held by {_name_clients(held)}", held)


def brighten_record(record: Sequence[tuple[int, int]]) -> Neighbour:
    """A record whose gradient is longer than any clip, wherever it is held."""
    rows = np.unique([row for _, row in record])

    def change(data: Data) -> Data:
        x = data.train.x[rows]
        return _with_rows(data, rows, (1 + x) * BRIGHT if x.dtype.kind == "f" else x, data.train.y[rows])

    held = {client for client, _ in record}
    return Neighbour(f"one record of extreme values, held by {_name_clients(held)}", frozenset(held), data=change)


def replace_record(record: Sequence[tuple[int, int]]) -> Neighbour:
    """A record in the place of another: of extreme values, and of another class."""
    rows = np.unique([row for _, row in record])

    def change(data: Data) -> Data:
        x = data.train.x[rows]
        y = (data.train.y[rows] + 1) % len(data.classes)
        return _with_rows(data, rows, (1 + x) * -BRIGHT if x.dtype.kind == "f" else x, y)

    held = {client for client, _ in record}
    return Neighbour(
        f"one record replaced by another, held by {_name_clients(held)}", frozenset(held), data=change
    )


def _drop_rows(name: str, gone: Mapping[int, Collection[int]]) -> Neighbour:
    """`gone`: client -> rows of the training set that it no longer holds."""

    def change(parts: list[Index]) -> list[Index]:
        return [part[~np.isin(part, list(gone[k]))] if k in gone else part for k, part in enumerate(parts)]

    return Neighbour(name, frozenset(gone), parts=change)


def _with_rows(data: Data, rows: Index, x: np.ndarray, y: np.ndarray) -> Data:
    images, labels = data.train.x.copy(), data.train.y.copy()
    images[rows], labels[rows] = x, y
    return replace(data, train=Arrays(x=images, y=labels, owner=data.train.owner))


def _name_clients(numbers: Collection[int]) -> str:
    listed = sorted(numbers)
    if len(listed) > FEW:
        return f"{len(listed)} clients"
    return f"client{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
