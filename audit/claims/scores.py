"""Re-scoring a claim: what its formula gives, whether that applies, and what its noise is worth."""

import math
from collections.abc import Sequence
from typing import Any

from fedaudit.audit.accounting.budget import round_up
from fedaudit.audit.accounting.formulas import central_limit, classical
from fedaudit.audit.claims.bounds import Interval, certify, interval
from fedaudit.audit.claims.claim import Claim, NoiseTarget
from fedaudit.audit.claims.conditions import conditions
from fedaudit.audit.claims.setting import Setting, assume_noise
from fedaudit.audit.claims.verdict import choose_delta, format_lower_bound, judge_claim, total_of
from fedaudit.reports.bound import PrivacyBound, Reason, Status
from fedaudit.reports.format import number
from fedaudit.reports.result import ClaimOutcome, ClaimRecord, ClaimRow, Severity


def rescore(claim: Claim) -> ClaimRecord:
    """The claim with everything computed again; imports dp-accounting, which is slow."""
    truth, stated = claim.judged, conditions(claim)
    total = total_of(claim, truth)
    verdict = judge_claim(claim, total, stated)
    measured = claim.setting("measured")
    counts = list(claim.releases.values())
    shown_below = format_lower_bound(certify(claim, measured, measured.releases or 1).lower) if measured else None
    return ClaimRecord(
        **_describe_claim(claim),
        outcome=verdict.outcome,
        verdict=verdict.sentence,
        severity=verdict.severity,
        exact=_round_up(interval(claim, truth, 1, choose_delta(claim, truth)).upper),
        bound=_bound(claim, total, shown_below),
        lower=total.lower,
        empirical=shown_below,
        conditions=stated,
        rows=[_make_row(s, claim, counts) for s in claim.settings if s.plain],
        sampled=[_make_sampled_row(s, claim) for s in claim.settings if not s.plain],
        needed=[_list_requirements(t) for t in claim.targets],
    )


def record_failure(claim: Claim, reason: str) -> ClaimRecord:
    """The claim where computing it went past the cap on time or memory, or failed."""
    return ClaimRecord(
        **_describe_claim(claim),
        outcome=ClaimOutcome.UNDECIDED,
        verdict=f"{ClaimOutcome.UNDECIDED.value.capitalize()}: its numbers were not computed: {reason}.",
        severity=Severity.NONE,
        exact=math.inf,
        bound=_state_bound(claim, math.inf, Status.NONE, Reason(source="cap", sentence=reason)),
        conditions=conditions(claim),
    )


def _bound(claim: Claim, total: Interval, measured: float | None) -> PrivacyBound:
    """What all releases cost: declared by the claim, unless a measurement speaks against it."""
    upper = _round_up(total.upper)
    if math.isinf(upper):
        return _state_bound(claim, upper, Status.NONE, Reason(source="accountant", sentence=total.how))
    if measured is not None and measured > upper:
        why = f"{number(upper)} was declared, refuted: a measurement shows {number(measured)} at least"
        return _state_bound(claim, math.inf, Status.REFUTED, Reason(source="noise test", sentence=why))
    return _state_bound(
        claim, upper, Status.DECLARED, Reason(source="assumption", sentence="nothing ran"), total.how
    )


def _state_bound(claim: Claim, epsilon: float, status: Status, reason: Reason, how: str = "") -> PrivacyBound:
    return PrivacyBound(
        observer="whoever reads what is released",
        unit=claim.unit,
        adjacency=claim.adjacency,
        delta=choose_delta(claim, claim.judged),
        epsilon=epsilon,
        status=status,
        reasons=[reason],
        declared_by="the claim",
        accountant=how,
        releases=claim.count(claim.judged),
        assumes=claim.judged.name,
    )


def _describe_claim(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "title": claim.title,
        "source": claim.source,
        "words": _join_lines(claim.words),
        "claimed": _describe_promise(claim),
        "claimed_epsilon": claim.promise.epsilon,
        "empirical_text": _join_lines(claim.empirical),
        "releases": list(claim.releases),
        "notes": [_join_lines(n) for n in claim.notes],
    }


def noise_for(target: NoiseTarget) -> float:
    """The Gaussian standard deviation that keeps a target, by the exact formula."""
    import dp_accounting

    one = float(dp_accounting.get_sigma_gaussian(target.epsilon, target.delta))
    return one * target.sensitivity * math.sqrt(target.releases)


def compute_recovery_rate(noise: float, spacing: float) -> float:
    """P[rounding to the nearest multiple of `spacing` gives the number back] under Gaussian noise."""
    return math.erf(spacing / 2 / (noise * math.sqrt(2))) if noise else 1.0


def _make_row(s: Setting, claim: Claim, counts: Sequence[int]) -> ClaimRow:
    delta = claim.delta(s)
    z = assume_noise(s, claim.mechanism, claim.unit, claim.adjacency).term.z
    uses = claim.theorem == "classical" and z and 0 < delta < 1
    return ClaimRow(
        name=s.name,
        delta=delta,
        multiplier=z,
        epsilon=[_round_up(interval(claim, s, n).upper) for n in counts],
        formula=classical(z, delta) if uses else None,
        recovered=compute_recovery_rate(s.noise or 0.0, s.spacing) if s.spacing else None,
    )


def _round_up(value: float) -> float:
    return round_up(value, 8 if value >= 1e7 else 6)


def _make_sampled_row(s: Setting, claim: Claim) -> ClaimRow:
    delta, count = claim.delta(s), claim.count(s)
    found = total_of(claim, s, delta)
    z = assume_noise(s, claim.mechanism, claim.unit, claim.adjacency).term.z
    return ClaimRow(
        name=f"{s.name}; {_describe_draw(s)}{count:,} release{'s' if count > 1 else ''}",
        delta=delta,
        multiplier=z,
        epsilon=[_round_up(found.upper)],
        lower=format_lower_bound(found.lower) or None,
        formula=_compute_own_formula(claim, z, s, delta),
        how=found.how,
    )


def _describe_draw(s: Setting) -> str:
    if s.shuffled is not None:
        return f"{s.shuffled:,} reports shuffled, "
    if s.tuned is not None:
        return f"the best of {s.tuned.mean:g} runs on average, "
    return f"{s.describe_draw()}, "


def _compute_own_formula(claim: Claim, z: float, s: Setting, delta: float) -> float | None:
    """What the claim's own formula gives for sampled releases; only the central limit has one."""
    if claim.theorem != "central_limit" or not z or not 0 < delta < 1:
        return None
    return central_limit(z, float(s.rate), claim.count(s), delta)


def _list_requirements(t: NoiseTarget) -> list[str]:
    times = "one release" if t.releases == 1 else f"{t.releases:,} releases"
    noise = f"{noise_for(t):.4g}"
    return [f"({number(t.epsilon)}, {number(t.delta)})", f"{t.sensitivity:g}", times, noise]


def _describe_promise(claim: Claim) -> str:
    if claim.promise.finite:
        return "some epsilon"
    if claim.promise.epsilon is None:
        return "no number" if claim.promise.delta == 0 else f"delta {number(claim.promise.delta)}"
    return f"({claim.promise.epsilon:g}, {number(claim.promise.delta)})"


def _join_lines(text: str) -> str:
    return " ".join(text.split())
