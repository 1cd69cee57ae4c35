"""Answers that need no attack: what is held against clients' own data, counted, or played with other data."""

from collections.abc import Sequence

from fedaudit.attacks.people import SMALL
from fedaudit.audit.checks._check import ENOUGH, ConstantKind
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports import format as fmt
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import Finding, Outcome


def answer_by_check(q: Question, findings: Sequence[Finding]) -> dict[str, object]:
    """Exfiltration in the open: by what is held against a client's own data, without any attack."""
    if q.aim is not Aim.EXFILTRATION:
        return {}
    ids = (f"raw-{q.kind}", f"untrue-{q.kind}")
    shown = [f.id for f in findings if f.id in ids and f.outcome is Outcome.DEMONSTRATED]
    if shown:
        return {
            "state": State.DEMONSTRATED,
            "findings": shown,
            "why": f"{shown[0]} was seen in recorded messages",
        }
    return {}


def describe_true_numbers(people: int) -> dict[str, object]:
    """Numbers that were held against what their senders hold carry nothing else (sample_counts.py)."""
    why = "every recorded number is the one that its sender holds, so that it carries nothing else"
    return {"state": State.BOUNDED, "at_most": 0, "people": people, "why": why}


def answer_by_census(q: Question, in_small_groups: int | None, people: int) -> dict[str, object]:
    """Attributes: a fact about a large group is no fact about one of its people, and who stands in small ones is
    known to the auditor."""
    if q.aim is not Aim.ATTRIBUTE or in_small_groups is None:
        return {}
    if in_small_groups > q.tolerable * people:
        return {}
    nobody = "nobody stands" if not in_small_groups else f"{in_small_groups:,} people stand"
    why = f"{nobody} in a group (one class of one client) of fewer than {SMALL}, by a census of all clients"
    return {"state": State.BOUNDED, "at_most": in_small_groups, "people": people, "why": why}


def describe_constancy(constant: ConstantKind, people: int) -> dict[str, object]:
    """Nothing of anybody's is in what comes out the same whoever stands in the place of its sender's people."""
    why = (
        f"in {constant.plays:,} plays with other people, of other numbers and classes, its senders' code sends "
        "the same, to the byte: it is made of what they received alone"
    )
    return {"state": State.BOUNDED, "at_most": 0, "people": people, "why": why}


def mention_plays(q: Question, constant: ConstantKind | None) -> Question:
    """An open question with how many plays with other people are missing, where none came out otherwise."""
    if q.is_answered or constant is None or constant.is_enough:
        return q
    played = fmt.plural(constant.plays, "play") if constant.plays else "no play"
    why = (
        f"{q.why}; of its senders' code {played} with other people could be made, and {ENOUGH} are needed to say "
        "that it sends the same whoever they are"
    )
    return q.model_copy(update={"why": why})
