"""Answers that need no attack: what is held against clients' own data, counted, or played with other data."""

from collections.abc import Sequence

from fedaudit.attacks.people import SMALL
from fedaudit.fl.threats.threat import Aim
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


def describe_independence(people: int) -> dict[str, object]:
    """Nothing of anybody's is in what comes out the same whatever examples its sender has (received_alone.py)."""
    why = (
        "with other examples in the place of their own its senders' code sends the same, to the byte: it is made "
        "of what they received alone"
    )
    return {"state": State.BOUNDED, "at_most": 0, "people": people, "why": why}
