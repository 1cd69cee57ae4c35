"""The deployment gate: one exit code from an audit result, a reviewer's waivers and a baseline."""

from collections.abc import Sequence
from datetime import date
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from fedaudit.audit.attestation.reviewer_files import Waiver
from fedaudit.reports.result import AuditResult, Finding, GateRecord, Outcome, Severity


class Code(IntEnum):
    """Exit codes of `fedaudit check`."""

    CLEAN = 0  # nothing at or above the chosen severity was demonstrated
    FINDINGS = 1
    COULD_NOT_RUN = 2
    INCONCLUSIVE = 3


class Gate(NamedTuple):
    code: Code
    sentence: str
    failing: tuple[str, ...] = ()  # ids of findings
    waived: tuple[Waiver, ...] = ()
    known: tuple[str, ...] = ()  # ids of findings that the baseline has, no milder

    def record(self, fail_on: Severity) -> GateRecord:
        """As exports print it."""
        words = {w.finding: f"{w.owner}, until {w.expires}: {w.reason}" for w in self.waived}
        return GateRecord.model_validate(
            {
                "outcome": self.code.name.lower(),
                "sentence": self.sentence,
                "fail_on": fail_on,
                "failing": list(self.failing),
                "waived": words,
                "known": list(self.known),
            }
        )


def gate(
    result: AuditResult,
    fail_on: Severity,
    *,
    unmet: Sequence[str] = (),
    waivers: Sequence[Waiver] = (),
    baseline: AuditResult | None = None,
    today: date | None = None,
) -> Gate:
    """Findings at or above `fail_on`, else whether the audit could have found any.

    An attack that failed or missed its control makes the gate inconclusive: it never counts as
    clean. So do an audit in which no attack ran and a required attack that did not run (`unmet`, sentences).
    A waiver takes one finding out until it expires; a finding no worse than in the baseline is known.
    """
    bad = [f for f in result.findings if f.outcome == Outcome.DEMONSTRATED and f.severity.rank >= fail_on.rank]
    before = {f.id: f.severity.rank for f in _demonstrated(baseline)}
    known = [f for f in bad if before.get(f.id, -1) >= f.severity.rank]
    day = today or date.today()
    about = {w.finding: w for w in waivers}
    rest = [f for f in bad if f not in known]
    waived = tuple(about[f.id] for f in rest if f.id in about and about[f.id].expires >= day)
    expired = [about[f.id] for f in rest if f.id in about and about[f.id].expires < day]
    rest = [f for f in rest if f.id not in {w.finding for w in waived}]
    decided = partial(Gate, waived=waived, known=tuple(f.id for f in known))
    if rest:
        worst = max(rest, key=lambda f: f.severity.rank)
        new = " that the baseline has not" if baseline else ""
        text = f"{len(rest)} at or above {fail_on}{new}; the worst: {worst.title}"
        if expired:
            text += f"; the waiver of {expired[0].finding} by {expired[0].owner} expired on {expired[0].expires}"
        return decided(Code.FINDINGS, text, tuple(f.id for f in rest))
    if unmet:
        return decided(Code.INCONCLUSIVE, f"{len(unmet)} requirements not met; the first: {unmet[0]}")
    open_ends = [f for f in result.findings if f.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILED)]
    if open_ends:
        first = open_ends[0]
        text = f"{len(open_ends)} inconclusive or failed; the first: {first.title}"
        return decided(Code.INCONCLUSIVE, text)
    coverage = result.headline.coverage
    if coverage.ran == 0:
        return decided(Code.INCONCLUSIVE, "no attack ran, so nothing could be demonstrated")
    text = (
        f"nothing at or above {fail_on} was demonstrated by the {coverage.ran} of "
        f"{coverage.applicable} applicable attacks that ran"
    )
    text += f"; {len(waived)} waived" if waived else ""
    text += f"; {len(known)} known from the baseline" if known else ""
    return decided(Code.CLEAN, text)


def _demonstrated(result: AuditResult | None) -> list[Finding]:
    return [] if result is None else [f for f in result.findings if f.outcome == Outcome.DEMONSTRATED]
