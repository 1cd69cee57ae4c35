"""Attempts: the attacks of an audit, planned or finished, and which question each one asks.

An attack asks what its card aims at, where it stands, of the kinds it makes claims about, in the rounds that it
really opened. A card names what an attack may read, and that answers nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaudit.attacks.attack import Card
from fedaudit.attacks.models._targets import GLOBAL, SHARE, SUM
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.observer.reach import Reach
from fedaudit.fl.kinds import UPDATES, Kind, Modality
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports.result import Finding, Outcome

RAN = (Outcome.DEMONSTRATED, Outcome.NOT_DEMONSTRATED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack: what came of it, and what it opened."""

    id: str  # its finding's, or its label where it is planned
    name: str  # of the attack
    card: Card
    is_changed: bool = False  # it has settings of its own, or does not come with fedaudit
    outcome: Outcome | None = None  # None: planned
    rounds: Mapping[Kind, frozenset[int]] = field(default_factory=dict)  # that it opened, or will
    shown: frozenset[Kind] = frozenset()  # of these, where it was seen to work
    people: Sequence[PeopleCount] = ()
    seconds: float = 0.0  # by its card
    reason: str = ""  # where it did not apply or failed

    @property
    def shipped(self) -> str:
        """Its name, where it comes with fedaudit and has the settings that it comes with; else empty."""
        return "" if self.is_changed else self.name

    @property
    def ran(self) -> bool:
        return self.outcome is None or self.outcome in RAN

    def find_people(self, kind: Kind) -> PeopleCount | None:
        """Whom it tested and hit by what it read of that kind; None where it says nothing of single people."""
        return next((p for p in self.people if p.kind in (None, kind)), None)

    def has_shown(self, kind: Kind) -> bool:
        """Whether it was seen to work on that kind."""
        return self.outcome is Outcome.DEMONSTRATED and kind in self.shown

    def is_about(self, aim: Aim, reach: Reach) -> bool:
        """Whether its card promises an answer there, whatever came of it."""
        return is_about(self.card, aim, reach)

    def covers(self, aim: Aim, reach: Reach) -> bool:
        """Whether it read what a question is about."""
        return self.ran and self.is_about(aim, reach) and bool(self.rounds.get(reach.kind))


def is_about(card: Card, aim: Aim, reach: Reach) -> bool:
    """Whether an attack with this card claims something with that aim of what that position reads.

    Clients in collusion are clients. What only helps an attack is no target of it.
    """
    position = card.threat.position
    stands = Position.CLIENT if position == Position.COLLUDING_CLIENTS else position
    return card.aim is aim and stands == reach.position and bool(card.pick_targets([reach.kind]))


def list_fitting(cards: Mapping[str, Card], aim: Aim, reach: Reach, modality: Modality) -> list[str]:
    """Names of those that ask a question, of such examples."""
    return [name for name, card in cards.items() if modality in card.modality and is_about(card, aim, reach)]


def gather_attempts(
    files: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    cards: Mapping[str, Card],
    names: Mapping[str, tuple[str, bool]],
    people: Mapping[str, Sequence[PeopleCount]],
    seconds: Mapping[str, float],
) -> list[Attempt]:
    """The attacks of a finished audit. Evidence of an attack that the config does not name answers nothing.

    `cards`, `names`, `people` and `seconds` go by the finding's id; `names` says of each attack how it is called
    and whether it is changed.
    """
    opened = {f["name"].replace(":", "."): f.get("rounds", {}) for f in files}
    made = []
    for finding in findings:
        if finding.source != "attack" or finding.id not in cards:
            continue
        rounds = {Kind(k): frozenset(r) for k, r in opened.get(finding.id, {}).items()}
        made.append(
            Attempt(
                id=finding.id,
                name=names[finding.id][0],
                is_changed=names[finding.id][1],
                card=cards[finding.id],
                outcome=finding.outcome,
                rounds=rounds,
                shown=find_shown(finding, {*cards[finding.id].pick_targets(rounds)}),
                people=people.get(finding.id, ()),
                seconds=seconds.get(finding.id, 0.0),
                reason=finding.summary,
            )
        )
    return made


def find_shown(finding: Finding, opened: Collection[Kind]) -> frozenset[Kind]:
    """Of what an attack opened, the kinds on which it was seen to work: those of the place that was graded."""
    if finding.outcome is not Outcome.DEMONSTRATED:
        return frozenset()
    conditions = [e.condition for e in finding.evidence if e.control == "none" and e.place == finding.where]
    if named := {str(c["kind"]) for c in conditions if "kind" in c}:
        return frozenset(k for k in opened if str(k) in named) or frozenset(opened)
    if models := {str(c["model"]) for c in conditions if "model" in c}:
        kinds = frozenset(
            k
            for k in opened
            if (GLOBAL in models and k == Kind.GLOBAL_MODEL)
            or (models & {SUM, SHARE} and k == Kind.AGGREGATE)
            or (models - {GLOBAL, SUM, SHARE} and k in UPDATES)
        )
        return kinds or frozenset(opened)
    return frozenset(opened)
