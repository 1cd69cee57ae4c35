"""Answers that need no attack: what is held against clients' own data, or played with other data."""

from collections.abc import Sequence

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


def describe_true_numbers() -> str:
    """Numbers that were held against what their senders hold carry nothing else (sample_counts.py)."""
    return "every recorded number is the one that its sender holds, so that it carries nothing else"


def describe_independence() -> str:
    """Nothing of anybody's is in what comes out the same whatever examples its sender has (received_alone.py)."""
    return (
        "with other examples in the place of their own its senders' code sends the same, to the byte: it is made "
        "of what they received alone"
    )
