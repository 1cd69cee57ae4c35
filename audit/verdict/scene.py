"""A scene: what questions about a federation follow from, and what an audit has to answer them with.

An attack asks what its card aims at, where it stands, of the kinds it makes claims about, in the rounds that it
really opened. A card names what an attack may read, and that answers nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedaudit.attacks.attack import Card
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.schemas import AttackFile
from fedaudit.audit.observer.check import ConstantKind
from fedaudit.audit.observer.reach import ObservedTraffic, Reach, Rounds
from fedaudit.audit.verdict.people import bound_by_privacy, find_luck
from fedaudit.audit.verdict.policy import Demands, Panel, load_policy
from fedaudit.audit.verdict.taxonomy import list_aims
from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import Kind, Need
from fedaudit.fl.threats.threat import Aim, Harm, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import Question, State, count_allowed
from fedaudit.reports.result import Finding, Outcome

COPIED = 0.001  # chance that a message resembles a copy of anybody's record, though nobody's is in it
CERTAIN = 0.05  # chance that anybody's record is in it after all, where nobody's may be
OBSERVERS = {"server": "server", "another client": "client", "public": "public"}  # of bounds -> positions
# no epsilon speaks of linkage: whether and when a client sends is in no release
BY_RECORD = frozenset({Harm.RECORD, Harm.RECONSTRUCTION, Harm.MEMBERSHIP, Harm.DIFFUSE})
BY_CLIENT = BY_RECORD | {Harm.ATTRIBUTE, Harm.CLIENT_FACT}  # what epsilon for a whole client bounds as well


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
    gives: frozenset[Need]  # what an attack may need of examples, and finds in these
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
            aims = self._list_summed_aims() if is_sum else dict(list_aims(reach.kind, channels, self.gives))
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
            for aim, waits in list_aims(kind, (Channel.UPLINK,), self.gives):
                aims[aim] = aims.get(aim, False) or waits
        return {aim: aims[aim] for aim in Aim if aim in aims}

    def find_rounds(self, reach: Reach) -> Rounds:
        """In which rounds that position was sent that kind, and in which all of it was kept."""
        rounds = [self.rounds.get((channel, reach.kind), Rounds()) for channel in self.traffic.paths[reach]]
        sent = frozenset[int]().union(*(r.sent for r in rounds))
        unkept = frozenset[int]().union(*(r.sent - r.kept for r in rounds))
        unread = frozenset[int]().union(*(r.unread for r in rounds))
        return Rounds(sent, sent - unkept - unread, unread)


def list_questions(scene: Scene, demands: Demands) -> list[Question]:
    """Everything that is asked of people's data, unanswered; the same before a run and after it."""
    return [
        Question(
            id=f"{harm}.{position}",
            harm=harm,
            observer=str(position),
            kinds=[str(r.reach.kind) for r in readings],
            required=(not readings or any(r.waits for r in readings))
            and demands.requires(harm, position, scene.are_persons)
            and (harm is not Harm.LINKAGE or scene.are_persons),
            state=State.OPEN,
            why="no attack was tried",
            tolerable=demands.tolerate(harm),
            people=len(scene.clients) if harm is Harm.CLIENT_FACT else scene.people,
        )
        for (position, harm), readings in scene.list_readings().items()
    ]


OUTCOMES = {
    "ran": Outcome.RAN,
    "unverified": Outcome.RAN,
    "not_applicable": Outcome.NOT_APPLICABLE,
    "failed": Outcome.FAILED,
}  # of the status that a file of evidence has


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack: what came of it, and what it opened."""

    id: str  # its finding's, or its label where it is planned
    name: str  # of the attack
    card: Card
    is_changed: bool = False  # it has settings of its own, or does not come with fedaudit
    outcome: Outcome | None = None  # None: planned
    rounds: Mapping[Kind, frozenset[int]] = field(default_factory=dict)  # that it opened, or will
    people: Sequence[PeopleCount] = ()
    seconds: float = 0.0  # by its card
    reason: str = ""  # where it did not apply or failed, or nobody could hold its claims against anything

    @property
    def shipped(self) -> str:
        """Its name, where it comes with fedaudit and has the settings that it comes with; else empty."""
        return "" if self.is_changed else self.name

    @property
    def ran(self) -> bool:
        return self.outcome in (None, Outcome.RAN)

    def find_people(self, harm: Harm, kind: Kind) -> PeopleCount | None:
        """Whom it tested and hit by what it read of that kind; None where it says nothing of single people."""
        return next((p for p in self.people if p.harm is harm and p.kind in (None, kind)), None)

    def covers(self, aims: Collection[Aim], places: Collection[Reach]) -> bool:
        """Whether it read what a question is about."""
        return self.ran and any(is_about(self.card, aims, p) and self.rounds.get(p.kind) for p in places)


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


def is_about(card: Card, aims: Collection[Aim], reach: Reach) -> bool:
    """Whether an attack with this card claims something with one of these aims of what that position reads.

    Clients in collusion are clients. What only helps an attack is no target of it.
    """
    position = card.threat.position
    stands = Position.CLIENT if position == Position.COLLUDING_CLIENTS else position
    return bool({*card.aims} & {*aims}) and stands == reach.position and bool(card.pick_targets([reach.kind]))


def name_finding(file: Mapping[str, Any]) -> str:
    """Id of the finding about an attack."""
    return str(file["name"]).replace(":", ".")


def gather_attempts(
    files: Sequence[Mapping[str, Any]],
    cards: Mapping[str, Card],
    names: Mapping[str, tuple[str, bool]],
    seconds: Mapping[str, float],
) -> list[Attempt]:
    """The attacks of a finished audit. Evidence of an attack that the config does not name answers nothing.

    `cards`, `names` and `seconds` go by label; `names` says of each attack how it is called and whether it is
    changed.
    """
    return [
        Attempt(
            id=name_finding(file),
            name=names[label][0],
            is_changed=names[label][1],
            card=cards[label],
            outcome=OUTCOMES[file["status"]],
            rounds={Kind(k): frozenset(r) for k, r in file.get("rounds", {}).items()},
            people=AttackFile.model_validate(file).people if file.get("people") else (),
            seconds=seconds.get(label, 0.0),
            reason=file["reason"],
        )
        for file in files
        if (label := file["name"]) in cards
    ]


def find_exact(harm: Harm, reading: Reading, rounds: Rounds, scene: Scene, answers: Answers) -> str:
    """Why nothing of anybody's can be in any round of what was sent; empty where that is not known."""
    reach = reading.reach
    if not rounds.sent:
        return ""
    if harm is Harm.RECORD and reach.kind in answers.checked and rounds.sent == rounds.kept:
        if any(f.id == f"untrue-{reach.kind}" and f.severity.rank for f in answers.findings):
            return ""
        return "every recorded number is the one that its sender holds, so that it carries nothing else"
    channels = scene.traffic.paths[reach]
    if not FROM_CLIENTS & channels:  # made of what the server knows of clients, which is all of this
        known = [(c, k) for c in (*FROM_CLIENTS, Channel.OBSERVED) for k in scene.traffic.kinds.get(c, ())]
    elif channels == {Channel.UPLINK} or reach.kind.control_plane:
        known = [(c, reach.kind) for c in channels & FROM_CLIENTS]
    else:
        return ""
    if not known or not all(_is_constant(c, k, scene, answers) for c, k in known):
        return ""
    plays = min(answers.constant[k].plays for _, k in known)
    return (
        f"in {plays:,} plays with other people, of other numbers and classes, its senders' code sends the "
        "same, to the byte: it is made of what they received alone"
    )


def _is_constant(channel: Channel, kind: Kind, scene: Scene, answers: Answers) -> bool:
    found, constant = scene.rounds.get((channel, kind), Rounds()), answers.constant.get(kind)
    if constant is None or not constant.is_enough:
        return False
    return found.sent <= (found.kept - found.unread) & frozenset(constant.rounds)


class PrivacyLimit(NamedTuple):
    """How many people an epsilon lets anybody hit beyond luck."""

    at_most: int
    share: float  # of the people of any group
    bound: PrivacyBound
    left: str  # what it leaves, in words

    @property
    def why(self) -> str:
        """As part of a sentence."""
        b = self.bound
        return (
            f"a verified epsilon of {b.epsilon:.3g} per {b.unit} (delta {fmt.number(b.delta)}) leaves {self.left}"
        )


def limit_by_privacy(
    q: Question, bounds: Iterable[PrivacyBound], people: int, clients: int, status: Status = Status.VERIFIED
) -> PrivacyLimit | None:
    """The smallest limit of epsilons of that status towards the reader; None without any that says something.

    It holds for whatever is read, in whichever round.
    """
    limits = []
    for bound in bounds:
        harms = BY_CLIENT if bound.unit == "client" else BY_RECORD
        if bound.status is status and q.harm in harms and OBSERVERS.get(bound.observer) == q.observer:
            limits += _limit(q.harm, bound, people, clients)
    return min(limits, key=lambda limit: limit.at_most, default=None)


def _limit(harm: Harm, bound: PrivacyBound, people: int, clients: int) -> list[PrivacyLimit]:
    """Of one epsilon. A record is in a message or is not, so there the chance that anybody's is must be small."""
    if harm is Harm.RECORD:
        chance = people * bound_by_privacy(bound.epsilon, bound.delta, COPIED / max(1, people))
        left = f"a chance of at most {fmt.percent(chance)} that anybody's record is in a message"
        return [PrivacyLimit(0, 0.0, bound, left)] if chance <= CERTAIN else []
    share = bound_by_privacy(bound.epsilon, bound.delta, find_luck(harm, clients))
    who = "clients" if harm is Harm.CLIENT_FACT else "people"
    return [
        PrivacyLimit(
            count_allowed(people, share), share, bound, f"at most {fmt.percent(share)} of {who} beyond luck"
        )
    ]


def mention_declared(q: Question, bounds: Iterable[PrivacyBound], people: int, clients: int) -> str:
    """What keeps a declared epsilon from answering an open question, to go on with; empty where none would."""
    limit = limit_by_privacy(q, bounds, people, clients, Status.DECLARED)
    if limit is None or limit.at_most > count_allowed(people, q.tolerable):
        return ""
    reason = limit.bound.reasons[0].sentence.rstrip(".")
    return (
        f"; the declared epsilon of {limit.bound.epsilon:.3g} per {limit.bound.unit} would bound it if it were "
        f"verified, and is not: {reason}"
    )
