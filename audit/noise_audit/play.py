"""Plays a federation once more, from the first round to the release, by the code that the run used."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedaudit.audit.case.federation import build_federation
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.probes import Neighbour
from fedaudit.audit.noise_audit.traces import noting_traces
from fedaudit.audit.noise_audit.world import Diverged, Listener, World, copy_payload
from fedaudit.audit.settings.code import named_code
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.recording.tap import MessageTap, listening
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.foreign import importing_anew
from fedaudit.fl.runtime.streams import counting_noise
from fedaudit.fl.runtime.workers import InProcess, Workers
from fedaudit.fl.wire.wire import Wire

MOST_TRAININGS = 500  # of one play
STEPS = frozenset({"exchange"})  # parts of a training, of which the last one ends it: none can be repeated for it
FEWEST = 8  # examples that a client holds, where it has so many
OTHER_SEED = 0x5EED  # added to the run's own
TRAINED = ("train", "work")  # what a site does for one client
SHIPPED = MessageTap.__module__.partition(".")[0] + "."


@dataclass(frozen=True)
class PlayLimits:
    """How much of a run one play takes. What is left out makes a bound `declared`, or is named beside it."""

    work: float = (
        5e9  # numbers of the model times examples trained on; clients hold fewer, and train less, beyond
    )
    memory: float = 2e9  # bytes of all messages of a play; fewer rounds are played beyond


@dataclass(frozen=True)
class PlayScale:
    """What of a run is played."""

    examples: int  # that a client holds at most
    tested: int  # test examples that models are evaluated on
    trainings: int  # of clients; later ones repeat a client's last message
    rounds: int

    @classmethod
    def from_limits(cls, case: SimulatedCase, limits: PlayLimits) -> "PlayScale":
        """As much as the limits allow: examples are left out first, then trainings."""
        sizes = [len(part) for part in case.population.parts]
        numbers = max(1, sum(v.numel() for v in case.initial().values()))
        rounds = int(case.method.config.rounds)
        each = 4 * numbers * (3 * len(sizes) + 2)
        rounds = min(rounds, max(3, int(limits.memory / each)))
        passes = (
            case.private.steps if case.private else max(1, int(getattr(case.method.config, "local_epochs", 1)))
        )
        trainings = len(sizes) * rounds
        examples = max(FEWEST, int(limits.work / (numbers * passes * trainings)))
        tested = max(FEWEST, int(limits.work / (numbers * rounds)))
        if examples > FEWEST:
            return cls(examples, tested, min(trainings, MOST_TRAININGS), rounds)
        return cls(examples, tested, max(2 * len(sizes), int(limits.work / (numbers * passes * FEWEST))), rounds)


def play(
    case: SimulatedCase, listener: Listener, neighbour: Neighbour, limits: PlayLimits, known: World | None = None
) -> World:
    """Plays `case`'s federation, changed as `neighbour` says, and returns what the listener saw.

    `known` is a world whose replies stand for those of clients that `neighbour` leaves as they are. Raises
    whatever the federation's own code raises.
    """
    scale = PlayScale.from_limits(case, limits)
    method = case.config.method
    config = case.config.model_copy(
        update={"method": method.model_copy(update={"settings": method.settings | {"rounds": scale.rounds}})}
    )
    data = neighbour.data(
        replace(case.data, test=case.data.test.take(np.arange(min(scale.tested, len(case.data.test)))))
    )
    parts = neighbour.parts([np.asarray(part)[: scale.examples] for part in case.population.parts])
    foreign = [name for _, name in named_code(config)]
    with importing_anew(foreign), TemporaryDirectory() as folder:
        fresh = SimulatedCase(config)  # methods, rules and protections that remember nothing
        fresh.__dict__.update(data=case.data, initial=case.initial)
        if is_shipped(case.partition):  # another may tell others of the team's plugins what it does
            fresh.__dict__.update(population=case.population)
        holdings = Holdings(data, parts, fresh.streams, fresh.population.server, fresh.time_model)
        site = partial(
            build_site, fresh.method, holdings, fresh.make_net, fresh.device, fresh.private, fresh.compromise
        )
        metrics = Log(Path(folder) / "metrics.jsonl")  # which a run has, and may read
        with _Rehearsed(site, listener, known, neighbour, scale.trainings) as workers:
            wire = Wire(fresh.method.card, fresh.streams, fresh.protections)
            federation = build_federation(fresh, holdings, wire, workers, metrics=metrics)
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


def is_shipped(plugin: object) -> bool:
    """Whether it is no code of a team's own."""
    return type(plugin).__module__.startswith(SHIPPED)


def reseed(case: SimulatedCase) -> SimulatedCase:
    """The federation under another master seed.

    Data, clients and the first model stay: noise that follows from what everybody has is equal then.
    """
    seed = case.config.seed + OTHER_SEED
    other = SimulatedCase(case.config.model_copy(update={"seed": seed}))
    other.__dict__.update(data=case.data, population=case.population, initial=case.initial)
    return other


class _Rehearsed(Workers):
    """Client work in this process. What a client did under the same data in an earlier world is not done again.

    Beyond `limit` trainings a client repeats its last reply: the server's part is played whole.
    """

    count = 1

    def __init__(
        self, site: Callable[[], Site], listener: Listener, known: World | None, neighbour: Neighbour, limit: int
    ) -> None:
        self._inner = InProcess(site)
        self._listener, self._known, self._neighbour, self._left = listener, known, neighbour, limit
        self._round, self._counts = 0, dict[tuple[Any, ...], int]()
        self._last: dict[tuple[Any, ...], Reply] = {}

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
                self._listener.repeat(known.during[*where, number], known)
        if reply is None and self._left <= 0 and kind not in STEPS:
            reply = self._last.get((kind, client))
            world.during[*where, number] = []  # nothing happens where nothing is trained
        if reply is None:
            self._left -= kind not in STEPS
            before = len(world.events)
            reply = next(self._inner.map(name, [item]))
            world.during[*where, number] = list(islice(world.events, before, None))
        self._last[kind, client] = world.replies[*where, number] = reply
        return _copy_reply(reply)

    def close(self) -> None:
        self._inner.close()


def _copy_reply(reply: Reply) -> Reply:
    """A reply that whoever gets it may change in place."""
    message = {kind: copy_payload(payload) for kind, payload in reply.message.items()}
    return replace(reply, message=message, memory=copy.deepcopy(reply.memory), stats=dict(reply.stats))
