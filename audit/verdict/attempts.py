"""Attempts: the attacks of an audit, planned or finished, and what each one read.

An attack asks what its card aims at, where it stands, of the kinds it makes claims about, in the rounds that it
really opened. A card names what an attack may read, and that answers nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaudit.attacks.attack import Card
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.schemas import AttackFile
from fedaudit.audit.observer.reach import Reach
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Harm, Position
from fedaudit.reports.result import Outcome

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
