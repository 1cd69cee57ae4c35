"""Answers that need no attack: what is held against clients' own data, or played with other data."""

from collections.abc import Sequence

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


def describe_true_numbers() -> str:
    """Numbers that were held against what their senders hold carry nothing else (sample_counts.py)."""
    return "every recorded number is the one that its sender holds, so that it carries nothing else"


def describe_constancy(constant: ConstantKind) -> str:
    """Nothing of anybody's is in what comes out the same whoever stands in the place of its sender's people."""
    return (
        f"in {constant.plays:,} plays with other people, of other numbers and classes, its senders' code sends "
        "the same, to the byte: it is made of what they received alone"
    )


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
