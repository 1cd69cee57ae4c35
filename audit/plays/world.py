"""One play of a federation by its own code, and what it lets anybody see.

A *world* is the federation with one thing changed: a client's data, a record, what clients send, who takes part.
Of each play a listener (fl/recording/tap.py) writes down every *event*: who was drawn, what left whom, what got
noise. A second world is compared with the first one event by event, and gets the first one's values as it goes,
so that one release differs at a time: differential privacy of a sequence asks of every release how far apart the
values before noise are, *given the same view so far*.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedaudit.audit.accounting.budget import SEES, is_visible
from fedaudit.audit.plays.factors import Factor, is_credited, is_of_steps
from fedaudit.fl.artifact import SERVER, Channel, Party
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.recording.tap import AddNoise, Message, MessageTap, Payload
from fedaudit.fl.wire.noising import norm

RELATIVE, ABSOLUTE = 1e-3, 1e-6  # tolerances of a distance: of what is declared, and of the noise's deviation
CALCULATED = ("gaussian", "laplace", "discrete_laplace")  # noise whose sensitivity is a norm
SPACING = 2.0**-22  # of single precision: a number near x is known to x times that


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


@dataclass(frozen=True)
class Neighbour:
    """A federation on neighbouring data: what is changed."""

    name: str
    touched: frozenset[int] = frozenset()  # clients whose data are changed: others need not be trained again
    data: Callable[[Data], Data] = lambda data: data
    parts: Callable[[list[Index]], list[Index]] = lambda parts: parts
    redrawn: bool = False  # those clients draw otherwise, from all but sources of noise and records' own coins


SAME = Neighbour("the same data")


class Key(NamedTuple):
    """Which event of a run it is."""

    place: str  # draw, noise, average, or the channel
    round: int
    party: str  # who sends; whose data gets noise
    name: str  # kind, or the mechanism that adds noise
    number: int = 0  # of several alike

    def __str__(self) -> str:
        return f"{self.place} of {self.name} by {self.party} in round {self.round}"


@dataclass(frozen=True)
class Event:
    """Something that an observer may see."""

    key: Key
    payload: Payload  # as it left; of noise, before
    noised: Payload = field(default_factory=dict)  # of noise, after
    line: Release | None = None  # of noise, what the ledger says


@dataclass
class World:
    """What one play let an observer see, in order."""

    events: dict[Key, Event] = field(default_factory=dict)
    lines: list[Release] = field(default_factory=list)
    opened: Counter[str] = field(default_factory=Counter)  # how often each stream of noise was opened
    traces: set[str] = field(default_factory=set)  # what code of a team's own opened meanwhile
    answering: dict[int, tuple[int, ...]] = field(default_factory=dict)  # round -> who was drawn
    # of clients' work: what each returned, and the events that happened meanwhile (play.py)
    replies: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    during: dict[tuple[Any, ...], list[Key]] = field(default_factory=dict)
    draws: dict[tuple[Any, ...], tuple[tuple[str, str], ...]] = field(default_factory=dict)  # streams and ends
    is_shortened: bool = False  # whether clients repeated messages in the place of training


class WorldDifference(NamedTuple):
    """Where two worlds differ: by more than the ledger allows, or where it allows nothing."""

    key: Key
    text: str  # what differs
    ratio: float | None = None  # distance over what is declared; None: nothing is declared


class Diverged(BaseException):
    """The second world shows something that the first did not: there is nothing to go on with."""


@dataclass
class Listener(MessageTap):
    """Writes down what `observer` sees of one play; with `first`, compares it with that and goes on alike.

    `factor(line)` times the declared sensitivity is how far clean values may be apart. `aside` are protections
    that change noise after it was drawn: they are heard where something leaves, as those are that draw their own.
    """

    observer: str
    probe: Probe
    first: World | None = None
    factor: Factor = lambda _: 1.0
    absent: int | None = None  # the client of the first world that is not in this one
    aside: frozenset[str] = frozenset()
    world: World = field(default_factory=World)
    differences: list[WorldDifference] = field(default_factory=list)
    ratios: dict[Key, float] = field(default_factory=dict)  # largest distance over what is declared
    moves: dict[int, Payload] = field(default_factory=dict)  # round -> by how much a mean's clean values differ
    changed: set[str] = field(default_factory=set)  # protections whose noised values differ where they leave
    _spent: dict[tuple[str, ...], list[float]] = field(default_factory=dict)  # sequence -> moved, and declared
    _counts: dict[tuple[str, int, str, str], int] = field(default_factory=dict)
    _expected: Iterator[Key] = field(default_factory=lambda: iter(()))  # events that the first world had
    # of noise made together in the first world: the event without its party -> each party's place among them
    _shares: dict[Key, dict[str, int]] = field(default_factory=dict)
    _tapped: set[tuple[int, str, str]] = field(default_factory=set)  # (round, party, source) of noise heard
    _entered: dict[tuple[int, str, str], list[Release]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.first is not None:
            gone = "" if self.absent is None else str(Party.client(self.absent))
            self._expected = iter([key for key in self.first.events if key.party != gone])
            for key in self.first.events:
                alike = self._shares.setdefault(key._replace(party=""), {})
                alike[key.party] = len(alike)

    # What the run calls -------------------------------------------------------------------------

    def draw(self, round: int, answering: tuple[int, ...]) -> tuple[int, ...]:
        if self.first is not None:
            expected = self.first.answering.get(round, answering)
            if answering != expected:
                self._note_difference(Key("draw", round, str(SERVER), "participation"), "other clients take part")
            answering = expected
        self.world.answering.setdefault(round, answering)
        return self.probe.choose_cohort(round, answering)

    def measure(self, round: int, client: int, value: float) -> float:
        return self.probe.measure(round, client, value)

    def send(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        return self.probe.replace_message(round, sender, message, reference)

    def enter(self, line: Release) -> None:
        self.world.lines.append(line)
        self.expect(line)

    def expect(self, line: Release) -> None:
        self._entered.setdefault((line.round, line.kind, line.sender), []).append(line)

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        key = self._make_key("noise", line.round, line.sender, f"{line.source} {line.kind}")
        if line.source in self.aside or not self._is_seen(line.observers):
            return add(clean)
        self._tapped.add((line.round, line.sender, line.source))
        before = copy_payload(clean)  # whoever adds noise may do so in place
        noised = add(clean)
        other = self._match_event(key, before, noised, line)
        if other is None:
            return noised
        if other.line != line:
            self._note_difference(key, "the ledger's line depends on the data", stop=True)
        self._compare_shapes(key, other.payload, before)
        self._measure(key, other.payload, before, line)
        self._compare_noise(other, before, noised, line)
        forced = copy_payload(other.noised)
        return self._mask(key, forced) if line.shared else forced

    def average(self, round: int, model: Payload, lines: Sequence[Release]) -> Payload:
        line = next((r for r in lines if r.mechanism in CALCULATED), None)
        if line is None or not self._is_seen(line.observers):
            return model
        key = self._make_key("average", round, str(SERVER), line.kind)
        other = self._match_event(key, model, line=line)
        if other is None:
            return model
        self._compare_shapes(key, other.payload, model)
        if (round, line.sender, line.source) in self._tapped:
            self._compare_values(key, other.payload, model, line.source)
        else:
            self._measure(key, other.payload, model, line)
        return copy_payload(other.payload)

    def carry(
        self, round: int, channel: Channel, sender: Party, seen_by: tuple[str, ...], message: Message
    ) -> Message:
        if not self._is_seen(seen_by):
            return {kind: self._carry_unseen(round, sender, kind, payload) for kind, payload in message.items()}
        party = str(sender) if channel != Channel.DOWNLINK else f"{sender} to {', '.join(seen_by)}"
        carried: Message = {}
        whole, kinds = self._make_key(channel.value, round, party, "message"), list(message)
        other = self._match_event(whole, {str(kind): torch.empty(0) for kind in kinds})
        if other is not None and list(other.payload) != [str(kind) for kind in kinds]:
            text = (
                f"sent {_join_names(kinds)} where it sent {_join_names(other.payload)} on the neighbouring data"
            )
            self._note_difference(whole, text, stop=True)
        for kind, payload in message.items():
            carried[kind] = self._carry_kind(round, channel, sender, party, kind, payload)
        return carried

    def end(self) -> None:
        """To be called when the play is over: what the first world showed and this one did not."""
        missing = next(self._expected, None)
        if missing is not None:
            self._note_difference(missing, "missing on the neighbouring data")

    def repeat(self, keys: Sequence[Key], world: World) -> None:
        """Events of work that is not done again, because `world` has them."""
        for key in keys:
            self._make_key(key.place, key.round, key.party, key.name)
            event = world.events[key]
            if event.line is not None:
                self._tapped.add((event.line.round, event.line.sender, event.line.source))
            if self.first is None:
                self.world.events[key] = event
            elif next(self._expected, None) != key:
                self._note_difference(key, "comes in another order", stop=True)

    # What it does with it -----------------------------------------------------------------------

    def _is_seen(self, observers: Collection[str]) -> bool:
        return is_visible(observers, SEES[self.observer])

    def _carry_kind(
        self, round: int, channel: Channel, sender: Party, party: str, kind: Kind, payload: Payload
    ) -> Payload:
        key = self._make_key(channel.value, round, party, str(kind))
        other = self._match_event(key, payload)
        if other is None:
            return payload
        self._compare_shapes(key, other.payload, payload)
        line = self._find_credit(round, kind, sender)
        if line is None:
            drawn = [
                r.source for r in self._entered.get((round, str(kind), str(sender)), ()) if r.noise_multiplier
            ]
            self._compare_values(key, other.payload, payload, *drawn)
        elif not is_of_steps(line):  # which say nothing of how far apart messages are
            self._measure(key, other.payload, payload, line)
        return copy_payload(other.payload)

    def _carry_unseen(self, round: int, sender: Party, kind: Kind, payload: Payload) -> Payload:
        """What an observer does not read itself, but whose noised values later messages tell."""
        line = self._find_credit(round, kind, sender)
        if line is None or not self._is_seen(line.observers):
            return payload
        return self._carry_kind(round, Channel.UPLINK, sender, str(sender), kind, payload)

    def _find_credit(self, round: int, kind: Kind, sender: Party) -> Release | None:
        """The line of noise that was added elsewhere than at a release point; None where there is none."""
        lines = self._entered.get((round, str(kind), str(sender)), ())
        noised = (r for r in lines if r.noise_multiplier and r.count)
        return next((r for r in noised if (round, r.sender, r.source) not in self._tapped), None)

    def _make_key(self, place: str, round: int, party: str, name: str) -> Key:
        count = self._counts.get((place, round, party, name), 0)
        self._counts[place, round, party, name] = count + 1
        return Key(place, round, party, name, count)

    def _match_event(
        self, key: Key, payload: Payload, noised: Payload | None = None, line: Release | None = None
    ) -> Event | None:
        """The same event of the first world, which comes next there; of the first world itself, written down."""
        if self.first is None:
            after = {} if noised is None else copy_payload(noised)
            self.world.events[key] = Event(key, copy_payload(payload), after, line)
            return None
        expected = next(self._expected, None)
        if expected != key:
            self._note_difference(key, f"comes where there was {expected or 'nothing more'}", stop=True)
        return self.first.events[key]

    def _mask(self, key: Key, share: Payload) -> Payload:
        alike = self._shares[key._replace(party="")]
        return self.probe.mask(share, alike[key.party], len(alike))

    def _note_difference(self, key: Key, text: str, stop: bool = False) -> None:
        self.differences.append(WorldDifference(key, text))
        if stop:
            raise Diverged

    def _compare_shapes(self, key: Key, first: Payload, second: Payload) -> None:
        if list(first) != list(second):
            self._note_difference(
                key, f"holds {_join_names(second)} where it held {_join_names(first)}", stop=True
            )
        for name, value in first.items():
            if (value.shape, value.dtype) != (second[name].shape, second[name].dtype):
                text = f"{name} is {_describe_shape(second[name])} where it was {_describe_shape(value)}"
                self._note_difference(key, text, stop=True)
        if _describe_layout(first) != _describe_layout(second):
            self._note_difference(key, "is sent in another number of bytes, or of other places", stop=True)

    def _compare_values(self, key: Key, first: Payload, second: Payload, *drawn: str) -> None:
        """`drawn` are the protections whose noise is in the values."""
        for name, value in first.items():
            if not self._is_equal(value, second[name]):
                self.changed |= {*drawn}
                self._note_difference(key, f"{name} differs, and no line of the ledger allows it", stop=True)

    def _is_equal(self, first: Tensor, second: Tensor) -> bool:
        if not self.probe.rounding or not first.is_floating_point():
            signs = not first.is_floating_point() or torch.equal(first.signbit(), second.signbit())
            return torch.equal(first, second) and signs  # 0 and -0 are equal, and tell a bit
        return torch.allclose(first, second, rtol=self.probe.rounding, atol=self.probe.rounding)

    def _measure(self, key: Key, first: Payload, second: Payload, line: Release) -> None:
        """Holds the distance of clean values, or of values under equal noise, against the line.

        Of answers at random no distance says how private they are.
        """
        if line.mechanism not in CALCULATED:
            return
        whole = line.mechanism == "discrete_laplace"
        moving = {k: v for k, v in first.items() if v.is_floating_point() or whole}
        self._compare_values(key, {k: v for k, v in first.items() if k not in moving}, second)
        if line.sender.endswith("/*"):
            self.moves[line.round] = {k: second[k] - v for k, v in moving.items()}
        moved = {k: second[k].double() - v.double() for k, v in moving.items()}
        distance = norm(moved, 2 if line.mechanism == "gaussian" else 1)
        declared = (line.sensitivity or 0.0) * self.factor(line)
        excess = distance - declared * (1 + RELATIVE) - self._bound_rounding(moving, second, line)
        ratio = distance / declared if declared else float("inf") if excess > 0 else 0.0
        self.ratios[key] = max(ratio, self.ratios.get(key, 0.0))
        is_over = self._spend(distance, declared, line)
        if excess > 0 and (is_over or is_credited(line) or line.coin == EACH):
            text = f"moved by {distance:.4g} where the ledger declares {declared:.4g}"
            self.differences.append(WorldDifference(key, text, ratio))

    def _spend(self, distance: float, declared: float, line: Release) -> bool:
        """Whether all releases of a sequence so far moved further than they declare together.

        The loss of Gaussian releases is that of the root of their summed squares, whatever each of them is, and
        that of others at most the sum (Smith, Thakurta. Fully Adaptive Composition for Gaussian DP. 2022). So
        noise that is correlated over rounds costs what the whole sequence of means moves.
        """
        order = 2 if line.mechanism == "gaussian" else 1
        spent = self._spent.setdefault((line.sender, line.unit, line.mechanism), [0.0, 0.0])
        for i, size in enumerate((distance, declared)):
            spent[i] += (size / line.noise_std) ** order if line.noise_std else 0.0
        return spent[0] > spent[1] * (1 + RELATIVE) ** order

    def _bound_rounding(self, first: Payload, second: Payload, line: Release) -> float:
        """How far two payloads may be apart because numbers are rounded."""
        count = sum(v.numel() for v in first.values())
        size = max(
            (float(v.abs().max()) for p in (first, second) for v in (p[k] for k in first) if v.numel()),
            default=0.0,
        )
        each = ABSOLUTE * line.noise_std + line.resolution + SPACING * size
        return float(each * (count**0.5 if line.mechanism == "gaussian" else count))

    def _compare_noise(self, first: Event, clean: Payload, noised: Payload, line: Release) -> None:
        """Adding noise does nothing else with data: under equal noise, sums differ as their clean parts do."""
        for name, value in first.noised.items():
            if not value.numel():
                continue
            before = first.payload[name]
            moved, expected = noised[name].double() - value.double(), clean[name].double() - before.double()
            size = max(float(v.abs().max()) for v in (clean[name], before, noised[name], value))
            rounding = 2 * line.resolution + 4 * SPACING * size + ABSOLUTE * line.noise_std
            if float((moved - expected).abs().max()) > rounding:
                self._note_difference(first.key, f"the noise on {name} depends on the data", stop=True)


def copy_payload(payload: Payload) -> Payload:
    arrays = {name: value.clone() for name, value in payload.items()}
    return Coded(arrays, payload.size, payload.masks) if isinstance(payload, Coded) else arrays


def _describe_layout(payload: Payload) -> tuple[Any, ...]:
    """What of a payload is seen besides its arrays."""
    if not isinstance(payload, Coded):
        return ()
    return payload.size, {name: mask.tolist() for name, mask in payload.masks.items()}


def _describe_shape(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _join_names(names: Collection[Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"


def iterate_noise(world: World) -> Iterator[Event]:
    """The events at which noise was added."""
    return (event for event in world.events.values() if event.line is not None and event.noised)


# How far a line lets clean values move, as a multiple of its sensitivity ------------------------------------
