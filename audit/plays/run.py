"""Plays a run once more, from the first round to the release, by the code that the run used.

Real neighbours move a correct release by half of what is declared; a message far beyond the clip moves it by all
of it. Such messages are put in before the protections, relative to what they are a change from, and keep their
shapes and masks; only kinds that the ledger credits with noise are touched.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fedaudit.audit.case.federation import Simulation
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.plays.world import CALCULATED, SAME, Diverged, Listener, Neighbour, Probe, World, copy_payload
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Party
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.execution.site import Site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import MODELS, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.model import State
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.recording.tap import Message, Payload, listening
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.foreign import importing_anew, noting_traces
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.streams import counting_noise, watching_draws
from fedaudit.fl.runtime.workers import InProcess, Workers
from fedaudit.fl.wire.wire import Wire

MOST_TRAININGS = 500  # of one play that is compared with another
MOST_OF_A_RUN = 5_000  # of the one that is compared with the run
STEPS = frozenset({"exchange"})  # parts of a training, of which the last one ends it: none can be repeated for it
FEWEST = 8  # examples that a client holds, where it has so many
OTHER_SEED = 0x5EED  # added to the run's own
TRAINED = ("train", "work")  # what a site does for one client
FAR = 1e4  # times the clip: whatever bounds a message binds here
NEAR = tuple(0.3 * 1.065**i for i in range(48))  # to 5.8 times the clip: where a soft clip overshoots
MANY = 10_000_000  # examples of one class
MASK = 4.0  # on every number of a share
CALM = 1e-3  # a loss, or seconds
Direction = Callable[[int, Payload], Payload]  # (round, arrays) -> arrays


@dataclass(frozen=True)
class PlayLimits:
    """How much of a run one play takes. What is left out makes a bound `declared`, or is named beside it."""

    work: float = 5e9  # numbers of the model times examples trained on; beyond, clients hold and train less
    memory: float = 2e9  # bytes of all messages of a play; fewer rounds are played beyond


@dataclass(frozen=True)
class PlayScale:
    """What of a run is played."""

    examples: int  # that a client holds at most
    tested: int  # test examples that models are evaluated on
    trainings: int  # of clients; later ones repeat a client's last message
    rounds: int


@dataclass(frozen=True)
class RunPlayer:
    """Plays one federation, as much of it as the limits allow."""

    case: SimulatedCase
    limits: PlayLimits = PlayLimits()
    begun: State | None = None  # the model before round 0; None: the case's own

    @property
    def first(self) -> State:
        """The model before round 0."""
        return self.case.network.initial() if self.begun is None else self.begun

    @cached_property
    def scale(self) -> PlayScale:
        """As much as the limits allow: examples are left out first, then trainings."""
        case, limits = self.case, self.limits
        clients = len(case.population.parts)
        numbers = max(1, sum(v.numel() for v in self.first.values()))
        rounds = min(self.rounds, max(3, int(limits.memory / (4 * numbers * (3 * clients + 2)))))
        epochs = max(1, int(getattr(case.method.config, "local_epochs", 1)))
        each = numbers * (case.private.steps if case.private else epochs)  # work of training on one example
        trainings = clients * rounds
        examples = max(FEWEST, int(limits.work / (each * trainings)))
        tested = max(FEWEST, int(limits.work / (numbers * rounds)))
        if examples > FEWEST:
            return PlayScale(examples, tested, min(trainings, MOST_TRAININGS), rounds)
        return PlayScale(examples, tested, max(2 * clients, int(limits.work / (each * FEWEST))), rounds)

    @property
    def rounds(self) -> int:
        """Those of the run."""
        return int(self.case.method.config.rounds)

    @property
    def is_whole(self) -> bool:
        """Whether clients hold all their examples in a play, for all rounds; each world says what it repeated."""
        most = max(map(len, self.case.population.parts))
        return most <= self.scale.examples and self.scale.rounds >= self.rounds

    def play(
        self,
        listener: Listener,
        neighbour: Neighbour = SAME,
        known: World | None = None,
        trainings: int | None = None,
    ) -> World:
        """Plays the federation, changed as `neighbour` says, and returns what the listener saw.

        `known` is a world whose replies stand for those of clients that `neighbour` leaves as they are. Of
        `trainings` there are as many as the scale says, or so many. Raises whatever the federation's own code
        raises.
        """
        case, scale, method = self.case, self.scale, self.case.config.method
        most = scale.trainings if trainings is None else trainings
        settings = method.settings | {"rounds": scale.rounds}
        config = case.config.model_copy(update={"method": method.model_copy(update={"settings": settings})})
        test = case.data.test.take(np.arange(min(scale.tested, len(case.data.test))))
        data = neighbour.data(replace(case.data, test=test))
        parts = neighbour.parts([np.asarray(part)[: scale.examples] for part in case.population.parts])
        foreign = [name for _, name in config.list_code()]
        with importing_anew(foreign), TemporaryDirectory() as folder:
            fresh = SimulatedCase(config)  # methods, rules and protections that remember nothing
            fresh.__dict__.update(data=case.data)
            if is_shipped(
                catalog.load("partitions", config.federation.partition.name)
            ):  # another may tell others of the team's plugins what it does
                fresh.__dict__.update(population=case.population)
            holdings = Holdings(data, parts, fresh.streams, fresh.population.server, fresh.time_model)
            metrics = Log(Path(folder) / "metrics.jsonl")  # which a run has, and may read
            simulation = Simulation(fresh)
            with _Rehearsed(simulation.make_site(holdings), listener, known, neighbour, most) as workers:
                wire = Wire(fresh.method.card, fresh.streams, fresh.protections)
                federation = simulation.build(holdings, wire, workers, initial=self.first, metrics=metrics)
                try:
                    with (
                        listening(listener),
                        counting_noise() as listener.world.opened,
                        noting_traces(foreign) as listener.world.traces,
                    ):
                        fresh.method.run(federation)
                    listener.end()
                except Diverged:
                    pass
                finally:
                    metrics.close()
        return listener.world

    def reseed(self) -> "RunPlayer":
        """The federation under another master seed.

        Data, clients and the first model stay: noise that follows from what everybody has is equal then.
        """
        case = self.case
        other = SimulatedCase(case.config.model_copy(update={"seed": case.config.seed + OTHER_SEED}))
        other.__dict__.update(data=case.data, population=case.population)
        return replace(self, case=other, begun=self.first)


class _Rehearsed(Workers):
    """Client work in this process. What a client did under the same data in an earlier world is not done again.

    Beyond `limit` trainings, and in rounds in which it was not drawn in that world, a client repeats a reply: the
    server's part is played whole.
    """

    count = 1

    def __init__(
        self, site: Callable[[], Site], listener: Listener, known: World | None, neighbour: Neighbour, limit: int
    ) -> None:
        self._inner = InProcess(site)
        self._listener, self._known, self._neighbour, self._left = listener, known, neighbour, limit
        self._round, self._counts = 0, dict[tuple[Any, ...], int]()
        replies = {} if known is None else known.replies
        untouched = {(where[0], where[1]): r for where, r in replies.items() if where[1] not in neighbour.touched}
        self._last: dict[tuple[Any, ...], Reply] = untouched

    def everywhere(self, name: str, *args: Any) -> None:
        if name == "begin":
            self._round = args[0]
        self._inner.everywhere(name, *args)

    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            yield self._train(name, item) if name in TRAINED else next(self._inner.map(name, [item]))

    def _train(self, name: str, item: Any) -> Reply:
        kind, (client, _, _) = ("train", item) if name == "train" else item
        where = (kind, client, self._round)
        number = self._counts.get(where, 0)
        self._counts[where] = number + 1
        world, known = self._listener.world, self._known
        reply: Reply | None = None
        if known is not None and client not in self._neighbour.touched:
            reply = known.replies.get((*where, number))
            if reply is not None:
                world.during[*where, number] = known.during[*where, number]
                world.draws[*where, number] = known.draws.get((*where, number), ())
                self._listener.repeat(known.during[*where, number], known)
        is_known = known is not None and client not in self._neighbour.touched
        if reply is None and (is_known or self._left <= 0) and kind not in STEPS:
            reply = self._last.get((kind, client))
            world.during[*where, number] = []  # nothing happens where nothing is trained
            world.is_shortened |= reply is not None
        if reply is None:
            self._left -= kind not in STEPS
            before = len(world.events)
            redrawn = self._neighbour.redrawn and client in self._neighbour.touched
            with watching_draws(*(["redrawn"] if redrawn else [])) as draws:
                reply = next(self._inner.map(name, [item]))
            world.draws[*where, number] = draws.read_ends()
            world.during[*where, number] = list(islice(world.events, before, None))
        self._last[kind, client] = world.replies[*where, number] = reply
        # whoever gets it may change it in place
        message = {kind: copy_payload(payload) for kind, payload in reply.message.items()}
        return replace(reply, message=message, memory=copy.deepcopy(reply.memory), stats=dict(reply.stats))

    def close(self) -> None:
        self._inner.close()


# What is put in ------------------------------------------------------------------------------------------


def fill_evenly(round: int, arrays: Payload) -> Payload:  # noqa: ARG001
    """all numbers alike"""
    return {name: torch.ones_like(value) for name, value in arrays.items()}


def alternate_signs(round: int, arrays: Payload) -> Payload:
    """signs changing from number to number"""
    signs = {n: 1.0 - 2.0 * ((torch.arange(v.numel()) + round) % 2) for n, v in arrays.items()}
    return {name: signs[name].to(value.dtype).view(value.shape) for name, value in arrays.items()}


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
    cohorts: Callable[[int], Collection[int]] | None = None  # by round, where others take part than were drawn
    _models: dict[int, Payload] = field(default_factory=dict)  # round -> the shared model that it began with

    def choose_cohort(self, round: int, answering: tuple[int, ...]) -> tuple[int, ...]:
        return answering if self.cohorts is None else tuple(sorted(self.cohorts(round)))

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
