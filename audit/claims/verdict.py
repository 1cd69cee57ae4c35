"""The verdict on a claim: holds under its assumptions, refuted, or cannot be decided.

A claim holds where an upper bound keeps it, under what is known to be so and what is assumed. It is refuted by a
lower bound only, never because an upper bound is larger. Everything else cannot be decided, and the sentence says
what is missing. Severity: what a measurement refutes is critical, what arithmetic refutes high; a promise without
a number, or that says next to nothing, is graded by what it leaves open.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedaudit.audit.accounting.budget import round_up
from fedaudit.audit.accounting.lints.numbers import MOST_DELTA, MOST_EPSILON
from fedaudit.audit.claims.bounds import NO_DELTA, OUT_OF_RANGE, Interval, certify, interval
from fedaudit.audit.claims.claim import Claim
from fedaudit.audit.claims.setting import Setting
from fedaudit.reports.format import number
from fedaudit.reports.result import ClaimCondition, ClaimOutcome, Severity


class ClaimVerdict(NamedTuple):
    outcome: ClaimOutcome
    reason: str
    severity: Severity

    @property
    def sentence(self) -> str:
        return f"{self.outcome.value.capitalize()}: {self.reason}."


def choose_delta(claim: Claim, s: Setting) -> float:
    """The delta that a verdict speaks of: that of the promise, where there is one."""
    return claim.delta(s) if claim.promise.epsilon is None else claim.promise.delta


def total_of(claim: Claim, s: Setting, delta: float | None = None) -> Interval:
    """What all releases of a setting cost; from below as well where the claim is not kept."""
    delta = choose_delta(claim, s) if delta is None else delta
    found = interval(claim, s, claim.count(s), delta)
    if claim.promise.epsilon is not None and found.upper > claim.promise.epsilon:
        return certify(claim, s, claim.count(s), delta)
    return found


def judge_claim(claim: Claim, total: Interval, stated: Sequence[ClaimCondition]) -> ClaimVerdict:
    """`total`: what all releases cost under the setting that holds."""
    promised = claim.promise.epsilon
    if promised is None:
        return _explain_finite(claim, total) if claim.promise.finite else _judge_without_number(claim, total)
    measured, claimed = claim.setting("measured"), claim.setting("claimed")
    if measured is not None:
        one = certify(claim, measured, measured.releases or 1, claim.promise.delta)
        if one.lower > promised:
            return _explain_refutation(claim, measured, one, measured.releases or 1, Severity.CRITICAL)
    if total.lower > promised:
        return _explain_refutation(claim, claim.judged, total, claim.count(claim.judged), Severity.HIGH)
    if claimed is not None and claimed is not claim.judged and total.upper > promised:
        own = total_of(claim, claimed)
        if own.lower > promised:
            return _explain_refutation(claim, claimed, own, claim.count(claimed), Severity.HIGH)
    if total.upper <= promised:
        return _explain_kept(claim, total, stated)
    missing = _explain_missing(claim, total)
    if claimed is not None and claimed is not claim.judged:
        alone = total_of(claim, claimed).upper
        if alone <= promised:
            missing += f"; what the claim assumes would keep it, at most {format_three_digits(round_up(alone))}"
    return ClaimVerdict(ClaimOutcome.UNDECIDED, missing, Severity.MEDIUM)


def _explain_refutation(
    claim: Claim, s: Setting, found: Interval, count: int, severity: Severity
) -> ClaimVerdict:
    promised = claim.promise.epsilon
    assert promised is not None
    over = "one release costs" if count == 1 else f"{count:,} releases cost"
    if math.isinf(found.lower):
        nothing = f"{found.below} ({s.name}), so that nothing limits the loss at any delta below 1"
        pure = f"{_lower_first(s.name)} has no finite epsilon at delta 0"
        return ClaimVerdict(ClaimOutcome.REFUTED, pure if found.below == NO_DELTA else nothing, severity)
    times = (
        f"{format_three_digits(format_lower_bound(found.lower / promised))} times the claim"
        if found.lower >= 1.1 * promised
        else ""
    )
    least = format_three_digits(format_lower_bound(found.lower))
    reason = (
        f"with {_lower_first(s.name)}, {over} at least {least} by {found.below}, "
        f"the claim says {promised:g}{f' ({times})' if times else ''}"
    )
    return ClaimVerdict(ClaimOutcome.REFUTED, reason, severity)


def _explain_kept(claim: Claim, total: Interval, stated: Sequence[ClaimCondition]) -> ClaimVerdict:
    assert claim.promise.epsilon is not None
    broken = [c.text for c in claim.conditions if c.status == "contradicted"]
    count = claim.count(claim.judged)
    over = "one release costs" if count == 1 else f"{count:,} releases cost"
    cost = f"{over} at most {format_three_digits(round_up(total.upper))} by {total.how}"
    cost += f", the claim says {claim.promise.epsilon:g}"
    if broken and claim.setting("actual") is None:
        needs = _lower_first("; ".join(broken))
        reason = f"{cost}, but what it needs does not hold ({needs}), and no setting says what does"
        return ClaimVerdict(ClaimOutcome.UNDECIDED, reason, Severity.MEDIUM)
    if claim.promise.delta >= MOST_DELTA:
        truth = claim.judged
        reason = f"{cost}, which says next to nothing at a delta of {claim.promise.delta:g}"
        if truth.delta is not None:
            small = interval(claim, truth, count, truth.delta).upper
            reason += f"; at delta {number(truth.delta)} it costs {format_three_digits(round_up(small))}"
        return ClaimVerdict(ClaimOutcome.HOLDS, reason, Severity.MEDIUM)
    assumed = sum(c.status == "assumed" for c in stated)
    reason = f"{cost}; {assumed} of {len(stated)} assumptions are taken for granted" if assumed else cost
    return ClaimVerdict(ClaimOutcome.HOLDS, reason, _grade_left_open(total.upper))


def _explain_finite(claim: Claim, total: Interval) -> ClaimVerdict:
    if total.below == NO_DELTA and math.isinf(total.lower):
        reason = f"{_lower_first(claim.judged.name)} has no finite epsilon at delta 0"
        return ClaimVerdict(ClaimOutcome.REFUTED, reason, Severity.HIGH)
    if math.isinf(total.lower):
        reason = f"{total.below} ({claim.judged.name}), so that nothing limits the loss at any delta below 1"
        return ClaimVerdict(ClaimOutcome.REFUTED, reason, Severity.HIGH)
    if math.isinf(total.upper):
        return ClaimVerdict(ClaimOutcome.UNDECIDED, _explain_missing(claim, total), Severity.HIGH)
    reason = f"it costs at most {format_three_digits(round_up(total.upper))} by {total.how}, which is finite"
    return ClaimVerdict(ClaimOutcome.HOLDS, reason, _grade_left_open(total.upper))


def _judge_without_number(claim: Claim, total: Interval) -> ClaimVerdict:
    count = claim.count(claim.judged)
    over = "one release costs" if count == 1 else f"{count:,} releases cost"
    if total.how in (NO_DELTA, OUT_OF_RANGE):
        cost = _explain_missing(claim, total)
    elif math.isinf(total.upper):
        cost = f"{total.how}, so that nothing limits the loss at any delta below 1"
    else:
        loose = ", which excludes no attack" if total.upper > MOST_EPSILON else ""
        cost = f"{over} at most {format_three_digits(round_up(total.upper))} by {total.how}{loose}"
    return ClaimVerdict(ClaimOutcome.UNDECIDED, f"no epsilon is stated; {cost}", _grade_left_open(total.upper))


def _explain_missing(claim: Claim, total: Interval) -> str:
    """What would decide it."""
    promised = f"the claim of {claim.promise.epsilon:g}" if claim.promise.epsilon is not None else "the claim"
    if not claim.judged.published:
        return f"the noise is not published, so that nothing can be computed for {promised}"
    if total.how == OUT_OF_RANGE:
        return f"its noise and sensitivity are {OUT_OF_RANGE}; check both, nothing can be computed for {promised}"
    if total.how == NO_DELTA:
        return f"Gaussian noise has no finite epsilon at delta 0; state a delta above 0 for {promised}"
    if math.isinf(total.upper):
        return f"what bounds one release is not published, so that nothing can be computed for {promised}"
    between = f"{promised} lies between at least {format_three_digits(format_lower_bound(total.lower))}"
    between += f" and at most {format_three_digits(round_up(total.upper))} ({total.how})"
    if not claim.judged.attained:
        return f"{between}; whether the sensitivity is reached is missing"
    if claim.judged.sampling == "shuffle" or claim.judged.shuffled:
        return f"{between}; a tight analysis of shuffling is missing"
    return f"{between}; a tighter analysis, or the mechanism itself, is missing"


def _grade_left_open(upper: float) -> Severity:
    """Of a promise that is not refuted: by how much it lets through."""
    return Severity.HIGH if upper > MOST_EPSILON else Severity.NONE


def format_lower_bound(value: float) -> float:
    """A lower bound, rounded down to three digits."""
    if not value or math.isinf(value):
        return value
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def format_three_digits(value: float) -> str:
    """Three digits; powers of ten beyond a million."""
    if math.isinf(value):
        return "infinity"
    return f"{value:.2e}".replace("e+0", "e").replace("e+", "e") if value >= 1e6 else number(value)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
