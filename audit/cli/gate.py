"""The deployment gate: one exit code from an audit result."""

from enum import IntEnum
from typing import NamedTuple

from reports.result import AuditResult, Outcome, Severity


class Code(IntEnum):
    """Exit codes of `fedaudit check`."""

    CLEAN = 0  # nothing at or above the chosen severity was demonstrated
    FINDINGS = 1
    COULD_NOT_RUN = 2
    INCONCLUSIVE = 3


class Gate(NamedTuple):
    code: Code
    sentence: str


def gate(result: AuditResult, fail_on: Severity) -> Gate:
    """Findings at or above `fail_on`, else whether the audit could have found any.

    An attack that failed or missed its control makes the gate inconclusive: it never counts as
    clean. So does an audit in which no attack ran.
    """
    bad = [f for f in result.findings if f.outcome == Outcome.DEMONSTRATED and f.severity.rank >= fail_on.rank]
    if bad:
        worst = max(bad, key=lambda f: f.severity.rank)
        return Gate(Code.FINDINGS, f"{len(bad)} at or above {fail_on}; the worst: {worst.title}")
    open_ends = [f for f in result.findings if f.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILED)]
    if open_ends:
        first = open_ends[0]
        return Gate(Code.INCONCLUSIVE, f"{len(open_ends)} inconclusive or failed; the first: {first.title}")
    coverage = result.headline.coverage
    if coverage.ran == 0:
        return Gate(Code.INCONCLUSIVE, "no attack ran, so nothing could be demonstrated")
    return Gate(
        Code.CLEAN,
        f"nothing at or above {fail_on} was demonstrated by the {coverage.ran} of "
        f"{coverage.applicable} applicable attacks that ran",
    )
