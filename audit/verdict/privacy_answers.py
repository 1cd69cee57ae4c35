"""Questions that an epsilon answers: a verified one bounds, a declared one says what is missing."""

import math
from collections.abc import Iterable, Iterator

from fedaudit.audit.verdict.people import bound_by_privacy
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import MESSAGES, Question, State

LUCK = 0.01  # share of people that an attack hits by chance, where a bound by privacy needs one
COPIED = 0.001  # chance that a message resembles a copy of anybody's record, though nobody's is in it
CERTAIN = 0.05  # chance that anybody's record is in it after all, where nobody's may be
OBSERVERS = {"server": "server", "another client": "client", "public": "public"}  # of bounds -> positions
BY_RECORD = frozenset({Aim.MEMBERSHIP, Aim.INVERSION, Aim.RECONSTRUCTION, Aim.REGURGITATION, Aim.EXFILTRATION})
BY_CLIENT = BY_RECORD | {Aim.ATTRIBUTE, Aim.LINKAGE}  # what epsilon for a whole client bounds as well


def answer_by_privacy(q: Question, limits: Iterable[PrivacyBound], people: int) -> dict[str, object]:
    """A verified epsilon towards the observer bounds whatever it reads, in whichever round."""
    for limit, share in _find_small_enough(q, limits, people, Status.VERIFIED):
        left = f"at most {fmt.percent(share)} of people beyond luck"
        if q.aim is Aim.EXFILTRATION:
            left = f"a chance of at most {fmt.percent(share * people)} that anybody's record is in a message"
        why = (
            f"a verified epsilon of {limit.epsilon:.3g} per {limit.unit} (delta {fmt.number(limit.delta)}) "
            f"leaves {left}"
        )
        return {"state": State.BOUNDED, "at_most": math.floor(share * people), "people": people, "why": why}
    return {}


def mention_declared(q: Question, limits: Iterable[PrivacyBound], people: int) -> Question:
    """An open question with what keeps a declared epsilon from answering it."""
    for limit, _ in _find_small_enough(q, limits, people, Status.DECLARED):
        reason = limit.reasons[0].sentence.rstrip(".")
        why = (
            f"{q.why}; the declared epsilon of {limit.epsilon:.3g} per {limit.unit} would bound it if it were "
            f"verified, and is not: {reason}"
        )
        return q.model_copy(update={"why": why})
    return q


def _find_small_enough(
    q: Question, limits: Iterable[PrivacyBound], people: int, status: Status
) -> Iterator[tuple[PrivacyBound, float]]:
    """Limits of that status that bound a question, each with the share of people that it leaves beyond luck.

    A record is in a message or is not, so for exfiltration the chance that anybody's is must be small.
    """
    copied = q.aim is Aim.EXFILTRATION
    luck, most = (COPIED / max(1, people), CERTAIN / max(1, people)) if copied else (LUCK, q.tolerable)
    for limit in limits if q.kind != MESSAGES else ():
        aims = BY_CLIENT if limit.unit == "client" else BY_RECORD
        if limit.status is status and q.aim in aims and OBSERVERS.get(limit.observer) == q.observer:
            share = bound_by_privacy(limit.epsilon, limit.delta, luck)
            if share <= most:
                yield limit, share
