"""What an epsilon leaves of a question: a verified one limits, a declared one says what is missing."""

from collections.abc import Iterable
from typing import NamedTuple

from fedaudit.audit.verdict.people import bound_by_privacy, find_luck
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import MESSAGES, Question, count_allowed

COPIED = 0.001  # chance that a message resembles a copy of anybody's record, though nobody's is in it
CERTAIN = 0.05  # chance that anybody's record is in it after all, where nobody's may be
OBSERVERS = {"server": "server", "another client": "client", "public": "public"}  # of bounds -> positions
BY_RECORD = frozenset({Aim.MEMBERSHIP, Aim.INVERSION, Aim.RECONSTRUCTION, Aim.REGURGITATION, Aim.EXFILTRATION})
BY_CLIENT = BY_RECORD | {Aim.ATTRIBUTE, Aim.LINKAGE}  # what epsilon for a whole client bounds as well


class PrivacyLimit(NamedTuple):
    """How many people an epsilon lets anybody hit beyond luck."""

    at_most: int
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
    """The smallest limit of epsilons of that status towards the observer; None without any that says something.

    It holds for whatever the observer reads, in whichever round.
    """
    limits = []
    for bound in bounds if q.kind != MESSAGES else ():
        aims = BY_CLIENT if bound.unit == "client" else BY_RECORD
        if bound.status is status and q.aim in aims and OBSERVERS.get(bound.observer) == q.observer:
            limits += _limit(q.aim, bound, people, clients)
    return min(limits, key=lambda limit: limit.at_most, default=None)


def _limit(aim: Aim, bound: PrivacyBound, people: int, clients: int) -> list[PrivacyLimit]:
    """Of one epsilon. A record is in a message or is not, so there the chance that anybody's is must be small."""
    if aim is Aim.EXFILTRATION:
        chance = people * bound_by_privacy(bound.epsilon, bound.delta, COPIED / max(1, people))
        left = f"a chance of at most {fmt.percent(chance)} that anybody's record is in a message"
        return [PrivacyLimit(0, bound, left)] if chance <= CERTAIN else []
    share = bound_by_privacy(bound.epsilon, bound.delta, find_luck(aim, clients))
    most = count_allowed(people, share)
    return [PrivacyLimit(most, bound, f"at most {fmt.percent(share)} of people beyond luck")]


def mention_declared(q: Question, bounds: Iterable[PrivacyBound], people: int, clients: int) -> Question:
    """An open question with what keeps a declared epsilon from answering it."""
    limit = limit_by_privacy(q, bounds, people, clients, Status.DECLARED)
    if limit is None or limit.at_most > count_allowed(people, q.tolerable):
        return q
    reason = limit.bound.reasons[0].sentence.rstrip(".")
    why = (
        f"{q.why}; the declared epsilon of {limit.bound.epsilon:.3g} per {limit.bound.unit} would bound it if it "
        f"were verified, and is not: {reason}"
    )
    return q.model_copy(update={"why": why})
