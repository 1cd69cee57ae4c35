"""Plays a federation once more, from the first round to the release, by the code that the run used.

What code of a team's own opens meanwhile is noted: a file, a connection, another program or the environment can
hold what one play leaves for the next one, and what the run left for all of them. Nobody can put that back to
where it was.
"""

import copy
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.probes import Neighbour
from fedaudit.audit.noise_audit.world import Diverged, Listener, World, copy_payload
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.execution.site import Site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.recording.tap import listening
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.foreign import importing_anew
from fedaudit.fl.runtime.streams import counting_noise
from fedaudit.fl.runtime.workers import InProcess, Workers
from fedaudit.fl.wire.wire import Wire

MOST_TRAININGS = 500  # of one play
STEPS = frozenset({"exchange"})  # parts of a training, of which the last one ends it: none can be repeated for it
FEWEST = 8  # examples that a client holds, where it has so many
OTHER_SEED = 0x5EED  # added to the run's own
OURS = __name__.partition(".")[0]
TRAINED = ("train", "work")  # what a site does for one client
HEARD = {"socket.connect": "a connection", "subprocess.Popen": "another program", "os.putenv": "the environment"}
CODE = (".py", ".pyc", ".so", ".pyd")


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
    foreign = [name for _, name in config.list_code()]
    with importing_anew(foreign), TemporaryDirectory() as folder:
        fresh = SimulatedCase(config)  # methods, rules and protections that remember nothing
        fresh.__dict__.update(data=case.data, initial=case.initial)
        if is_shipped(case.partition):  # another may tell others of the team's plugins what it does
            fresh.__dict__.update(population=case.population)
        holdings = Holdings(data, parts, fresh.streams, fresh.population.server, fresh.time_model)
        metrics = Log(Path(folder) / "metrics.jsonl")  # which a run has, and may read
        with _Rehearsed(fresh.make_site(holdings), listener, known, neighbour, scale.trainings) as workers:
            wire = Wire(fresh.method.card, fresh.streams, fresh.protections)
            federation = fresh.build_federation(holdings, wire, workers, metrics=metrics)
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
    return type(plugin).__module__.startswith(f"{OURS}.")


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


_heard: set[str] | None = None
_tops: frozenset[str] = frozenset()


@contextmanager
def noting_traces(names: Collection[str]) -> Iterator[set[str]]:
    """What code of these names ("module:Class") opens inside, in words; in whichever thread it does."""
    global _heard, _tops
    _install()
    _heard, _tops = set(), frozenset(n.partition(":")[0].partition(".")[0] for n in names)
    try:
        yield _heard
    finally:
        _heard = None


def _install() -> None:
    """Python keeps such a hook until it ends."""
    if not hasattr(sys, "_fedaudit_traces"):
        sys._fedaudit_traces = True  # type: ignore[attr-defined]
        sys.addaudithook(_hear)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _heard is None or not (event == "open" or event in HEARD):
        return
    if event == "open" and not (
        isinstance(args[0], str | bytes | os.PathLike) and not _is_code(os.fsdecode(args[0]))
    ):
        return
    if _is_asked_by_team():
        _heard.add(HEARD.get(event) or f"the file {os.path.basename(os.fsdecode(args[0]))!r}")


def _is_code(path: str) -> bool:
    return path.endswith(CODE) or "__pycache__" in path


def _is_asked_by_team() -> bool:
    """Whether the nearest caller that is not a library's is the team's code."""
    frame = sys._getframe(2)
    while frame is not None:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top in _tops:
            return True
        if top == OURS:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False
