"""A scene: what questions about a federation follow from, and what an audit has to answer them with."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from fedaudit.attacks.attack import Card
from fedaudit.audit.checks._check import ConstantKind
from fedaudit.audit.observer.reach import ObservedTraffic, Reach, Rounds
from fedaudit.audit.verdict.aims import list_aims
from fedaudit.audit.verdict.attempts import Attempt
from fedaudit.audit.verdict.policy import Panel, load_policy
from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import Kind, Modality
from fedaudit.fl.threats.threat import Aim, Harm, Position
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.result import Finding


class Reading(NamedTuple):
    """A kind of message that somebody reads, and what attacks on one harm aim at in it."""

    reach: Reach
    aims: tuple[Aim, ...]
    waits: bool  # a verdict may wait for what it tells


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A federation, as far as questions and their answers follow from it."""

    traffic: ObservedTraffic
    rounds: Mapping[tuple[Channel, Kind], Rounds]
    modality: Modality
    clients: AbstractSet[int] = frozenset()  # that hold examples
    people: int = 0  # examples of all of them
    fewest: int | None = None  # examples of the smallest of them; None: not known
    are_persons: bool = False  # or pseudonymous, so that who sent a message tells of a person

    def list_readings(self) -> Mapping[tuple[Position, Harm], list[Reading]]:
        """Of every reader and harm the messages in which it is to be looked for; the same before a run and after.

        The server reads what it computes, so a model that it releases is among its readings.
        """
        found: dict[tuple[Position, Harm], list[Reading]] = {}
        for reach, channels in self.traffic.paths.items():
            is_sum = reach.kind == Kind.AGGREGATE
            aims = self._list_summed_aims() if is_sum else dict(list_aims(reach.kind, channels, self.modality))
            for harm in Harm:
                mine = {aim: waits for aim, waits in aims.items() if harm in aim.harms}
                if mine:
                    reading = Reading(reach, tuple(mine), any(mine.values()))
                    found.setdefault((reach.position, harm), []).append(reading)
        if self.is_heard and self.traffic.has_server:
            found.setdefault((Position.SERVER, Harm.LINKAGE), [])
        positions = dict.fromkeys(position for position, _ in found)
        return {(p, h): found[p, h] for p in positions for h in Harm if (p, h) in found}

    @property
    def is_heard(self) -> bool:
        """Whether clients send anything, whose times and presence tell of them whatever stands in it."""
        return any(self.traffic.kinds.get(c) for c in FROM_CLIENTS)

    def _list_summed_aims(self) -> dict[Aim, bool]:
        """Of a sum is asked what is asked of what it sums, as a client would have sent it."""
        aims: dict[Aim, bool] = {}
        for kind in sorted(self.traffic.summed):
            for aim, waits in list_aims(kind, (Channel.UPLINK,), self.modality):
                aims[aim] = aims.get(aim, False) or waits
        return {aim: aims[aim] for aim in Aim if aim in aims}

    def find_rounds(self, reach: Reach) -> Rounds:
        """In which rounds that position was sent that kind, and in which all of it was kept."""
        rounds = [self.rounds.get((channel, reach.kind), Rounds()) for channel in self.traffic.paths[reach]]
        sent = frozenset[int]().union(*(r.sent for r in rounds))
        unkept = frozenset[int]().union(*(r.sent - r.kept for r in rounds))
        unread = frozenset[int]().union(*(r.unread for r in rounds))
        return Rounds(sent, sent - unkept - unread, unread)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What an audit has to answer questions with."""

    attempts: Sequence[Attempt]
    panel: Panel = field(default_factory=lambda: load_policy("default").whole_panel)
    shipped: Mapping[str, Card] = field(default_factory=dict)  # every attack that comes with fedaudit, by name
    seconds: Mapping[str, float] = field(default_factory=dict)  # of those that were not attempted
    left: Mapping[str, str] = field(default_factory=dict)  # name -> why one that could run did not
    findings: Sequence[Finding] = ()
    limits: Sequence[PrivacyBound] = ()
    checked: AbstractSet[Kind] = frozenset()  # counts that were held against what clients hold
    doubt: str = ""  # why hitting few people says nothing of this run
    constant: Mapping[Kind, ConstantKind] = field(default_factory=dict)  # what came out the same when played

    def find_constant(self, reach: Reach, scene: Scene) -> ConstantKind | None:
        """What plays say of a kind that only its senders' code makes there."""
        is_own = scene.traffic.paths[reach] == {Channel.UPLINK} or reach.kind.control_plane
        return self.constant.get(reach.kind) if is_own else None


def list_twins(reach: Reach, traffic: ObservedTraffic) -> list[Reach]:
    """The same artifact as it is read here, and elsewhere where the server sends it: one message for all."""
    paths = traffic.paths
    if FROM_CLIENTS & paths[reach]:
        return [reach]
    return [
        reach,
        *(
            r
            for r, channels in paths.items()
            if r.kind == reach.kind and r != reach and not FROM_CLIENTS & channels
        ),
    ]


def describe_rounds(some: AbstractSet[int], every: AbstractSet[int]) -> str:
    """Rounds in words, counted from 1: "all 15 rounds", "round 15 of 15", "rounds 1 to 14 of 15"."""
    if not every:
        return "all rounds"
    total = max(every) + 1
    if len(some) == len(every):
        return "the only round" if len(every) == 1 else f"all {len(every):,} rounds"
    if len(some) == 1:
        return f"round {next(iter(some)) + 1:,} of {total:,}"
    low, high = min(some), max(some)
    if high - low + 1 == len(some):
        return f"rounds {low + 1:,} to {high + 1:,} of {total:,}"
    return f"{len(some):,} of {len(every):,} rounds"
