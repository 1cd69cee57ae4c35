"""Bounds in words, the same in every report, command and export."""

from collections.abc import Callable, Sequence

from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.format import number, plural

MOST_REASONS = 2  # in words; audit.json has them all


def label_bound(bound: PrivacyBound, write: Callable[[float], str] = number) -> str:
    """The bound in a few words for a cell of a table: "at most 4.69 (verified)"; `write` spells the epsilon."""
    beside = f" if zeroed out, {write(bound.replaced)} if replaced" if bound.replaced is not None else ""
    if bound.status is Status.VERIFIED:
        return f"at most {write(bound.epsilon)}{beside} (verified)"
    if bound.status is Status.DECLARED:
        word = "planned" if any(r.source == "plan" for r in bound.reasons) else "declared"
        return f"{word}: {write(bound.epsilon)}{beside}"
    if bound.is_open:
        return "none: left open"
    return str(bound.status)


def describe_bound(bound: PrivacyBound) -> str:
    """The bound with what its status rests on, as a phrase."""
    label = label_bound(bound)
    if bound.status is Status.VERIFIED:
        evidence = describe_evidence(bound)
        return f"{label}, {evidence}" if evidence else label
    why = _join(list(dict.fromkeys(r.sentence.rstrip(".") for r in bound.reasons)))
    if bound.status is Status.DECLARED:
        word, _, epsilon = label.partition(": ")
        return f"{word} by {bound.declared_by}: {epsilon}; {why}"
    if bound.status is Status.REFUTED:
        return f"{why}; no limit holds"
    return f"none: {why}"


def _join(sentences: Sequence[str]) -> str:
    more = len(sentences) - MOST_REASONS
    rest = f"; and {plural(more, 'more reason')}" if more > 0 else ""
    return "; ".join(sentences[:MOST_REASONS]) + rest


def describe_evidence(bound: PrivacyBound) -> str:
    """What was tried against a verified bound, as a phrase; empty where its numbers are not known."""
    parts = [f"{plural(bound.pairs, 'pair')} of neighbouring data"] if bound.pairs else []
    parts += [plural(bound.tests, "test") + " of the noise"] if bound.tests else []
    return f"no counterexample among {' and '.join(parts)}" if parts else ""
