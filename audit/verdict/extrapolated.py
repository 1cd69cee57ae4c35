"""What messages planted with recorded models say of a federation whose clients nobody told of.

No recorded message could be measured. But the auditor had clients send messages made of the auditor's own
examples, with the recorded models, for several n: a curve. Recorded messages that are made of no more examples
than a planted one, in no more steps, leak at least what that one leaks. A rule that holds there gives a severity,
capped one level below its own and named extrapolated; the finding stays open, since nothing that clients sent
was checked.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.verdict.findings import Attacked
from fedaudit.audit.verdict.judge import judge
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.audit.verdict.replays import is_replay
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Finding, Outcome, Severity

ORIGIN = "extrapolated"


def extrapolate_finding(finding: Finding, subject: Attacked, policy: GradingPolicy) -> Finding:
    """The finding of an attack whose claims could not be verified; any other as it is."""
    if not subject.unverified:
        return finding
    curve = [e for e in subject.found if is_replay(e) and "n" in e.condition]
    sizes: Sequence[int] = subject.file.get("sizes", [])
    if not curve or not sizes:
        return finding
    here = [e for e in curve if _covers(e, sizes[0], subject.file.get("steps", 0))]
    longest = max(float(e.condition["n"]) for e in curve)
    where = f"The recorded messages are made of {_span(sizes)} examples; planted were up to {longest:g}."
    finding = finding.model_copy(update={"summary": f"{finding.summary} {where}"})
    verdict = judge([*subject.found, *map(_extrapolate_evidence, here)], policy) if here else None
    if verdict is None or verdict.outcome is not Outcome.DEMONSTRATED:
        return finding
    severity = below(verdict.severity)
    if severity is Severity.NONE:
        text = f"Planted messages of that size leak little ({verdict.rule}, {severity} one level below)."
        return finding.model_copy(update={"reason": f"{finding.reason} {text}"})
    card = subject.file["card"]
    return finding.model_copy(
        update={
            "title": f"{card['title']}: as many planted examples reveal {card['learns']} (extrapolated)",
            "severity": severity,
            "extrapolated": True,
            "reason": f"Extrapolated from planted messages, so {severity} and not {verdict.severity}, one level "
            f"below. {verdict.reason}",
            "rule": verdict.rule,
            "where": verdict.where,
        }
    )


def below(severity: Severity) -> Severity:
    """One level below; none stays none."""
    order = list(Severity)
    return order[min(order.index(severity) + 1, len(order) - 1)]


def _covers(e: Evidence, n: int, steps: int) -> bool:
    """Whether what was planted is made of at least that many examples, and trained for at least as many steps."""
    return float(e.condition["n"]) >= n and float(e.condition.get("steps", steps)) >= steps


def _extrapolate_evidence(e: Evidence) -> Evidence:
    return replace(e, control="none", condition={**e.condition, "origin": ORIGIN})


def _span(sizes: Sequence[int]) -> str:
    low, high = fmt.number(sizes[0]), fmt.number(sizes[-1])
    return low if low == high else f"{low} to {high}"
