"""Re-scoring a claim: what its formula gives, whether that applies, and what its noise is worth.

Severity: a claim that a measurement contradicts is critical, one that its own noise contradicts high,
one that promises nothing (delta of 0.1 and more) medium.
"""

import math
from collections.abc import Mapping, Sequence

from audit.claims.claim import Claim, Role, Setting, Target
from audit.dp.accountants._engines import choose, tightest
from audit.dp.accountants.exact import closed_form
from audit.dp.budget import rounded_up
from audit.dp.formulas import central_limit, classical
from audit.dp.lints.numbers import MOST_DELTA, MOST_EPSILON
from audit.dp.terms import Term, merged
from fl.ledger import Mechanism, Sampling
from reports.format import number
from reports.result import ClaimCondition, ClaimRecord, ClaimRow, Severity


def rescored(claim: Claim) -> ClaimRecord:
    """The claim with everything computed again; imports dp-accounting, which is slow."""
    counts = list(claim.releases.values())
    plain = [s for s in claim.settings if s.sampling == "none"]
    rows = [_row(s, claim, counts) for s in plain]
    by_role = {s.role: row for s, row in zip(plain, rows, strict=True)}
    true, measured = by_role["actual"], by_role.get("measured")
    verdict, severity = _verdict(claim, by_role)
    return ClaimRecord(
        id=claim.id,
        title=claim.title,
        source=claim.source,
        words=_line(claim.words),
        verdict=verdict,
        severity=severity,
        claimed=_promise(claim),
        claimed_epsilon=claim.promise.epsilon,
        exact=true.epsilon[0],
        composed=true.epsilon[-1],
        empirical=_shown(measured.epsilon[0]) if measured else None,
        empirical_text=_line(claim.empirical),
        conditions=_conditions(claim, by_role.get("claimed", true)),
        releases=list(claim.releases),
        rows=rows,
        sampled=[_sampled(s, claim) for s in claim.settings if s.sampling != "none"],
        needed=[_needed(t) for t in claim.targets],
        notes=[_line(n) for n in claim.notes],
    )


def epsilon(mechanism: Mechanism, noise: float, sensitivity: float | None, delta: float, count: int) -> float:
    """The exact cost of `count` releases; infinity where nothing is noised or bounded."""
    if mechanism == "none" or not noise or sensitivity is None:
        return math.inf
    return closed_form(merged({Term(mechanism, noise / sensitivity, "none", 1.0): count}), delta)


def noise_for(target: Target) -> float:
    """The Gaussian standard deviation that keeps a target, by the exact formula."""
    import dp_accounting

    one = float(dp_accounting.get_sigma_gaussian(target.epsilon, target.delta))
    return one * target.sensitivity * math.sqrt(target.releases)


def recovered(noise: float, spacing: float) -> float:
    """P[rounding to the nearest multiple of `spacing` gives the number back] under Gaussian noise."""
    return math.erf(spacing / 2 / (noise * math.sqrt(2))) if noise else 1.0


def _row(s: Setting, claim: Claim, counts: Sequence[int]) -> ClaimRow:
    delta = claim.promise.delta if s.delta is None else s.delta
    z = s.noise / s.sensitivity if s.sensitivity else 0.0
    exact = [epsilon(claim.mechanism, s.noise, s.sensitivity, delta, n) for n in counts]
    uses = claim.theorem == "classical" and z and 0 < delta < 1
    return ClaimRow(
        name=s.name,
        delta=delta,
        multiplier=z,
        epsilon=[_up(e) for e in exact],
        formula=classical(z, delta) if uses else None,
        recovered=recovered(s.noise, s.spacing) if s.spacing else None,
    )


def _up(value: float) -> float:
    return rounded_up(value, 8 if value >= 1e7 else 6)


def _sampled(s: Setting, claim: Claim) -> ClaimRow:
    from audit.dp.accountants.pld import PLD

    delta = claim.promise.delta if s.delta is None else s.delta
    z = s.noise / s.sensitivity if s.sensitivity else 0.0
    sampling: Sampling = s.sampling
    counts = {Term(claim.mechanism, z, sampling, float(s.rate)): s.releases}
    found = tightest(counts, delta, PLD.Config())
    drawn = "Poisson" if s.sampling == "poisson" else "fixed number"
    name = f"{s.name}; {drawn}, rate {s.rate:.3g}, {s.releases:,} releases"
    return ClaimRow(
        name=name,
        delta=delta,
        multiplier=z,
        epsilon=[_up(found.epsilon)],
        lower=found.lower,
        formula=_cited(claim, z, s, delta),
        how=found.engine or choose(counts, delta).card.title,
    )


def _cited(claim: Claim, z: float, s: Setting, delta: float) -> float | None:
    """What the claim's own formula gives for sampled releases; only the central limit has one."""
    if claim.theorem != "central_limit" or not z or not 0 < delta < 1:
        return None
    return central_limit(z, float(s.rate), s.releases, delta)


def _needed(t: Target) -> list[str]:
    times = "one release" if t.releases == 1 else f"{t.releases:,} releases"
    noise = f"{noise_for(t):.4g}"
    return [f"({number(t.epsilon)}, {number(t.delta)})", f"{t.sensitivity:g}", times, noise]


def _conditions(claim: Claim, claimed: ClaimRow) -> list[ClaimCondition]:
    found: list[ClaimCondition] = []

    def add(text: str, holds: bool, because: str) -> None:
        found.append(ClaimCondition(text=text, holds=holds, because=because))

    promised = claim.promise
    if claimed.formula is not None and promised.epsilon is not None:
        add(
            "The formula gives the epsilon that is claimed",
            claimed.formula <= promised.epsilon * (1 + 1e-4),
            f"it gives {claimed.formula:.5g}, the claim says {promised.epsilon:g}",
        )
    if claimed.formula is not None:
        stated = claimed.formula if promised.epsilon is None else promised.epsilon
        add(
            "Epsilon is below 1, where the formula is proved",
            stated < 1,
            f"epsilon is {stated:.4g}; exactly, one release costs {claimed.epsilon[0]:.5g}",
        )
    if claim.theorem == "central_limit":
        add("The formula is a bound", False, "a central limit errs in both directions")
    if claim.units is not None:
        share = 1 / claim.units
        add(
            "delta is below 1 / the number of units",
            promised.delta < share,
            f"delta is {promised.delta:g}, 1 / {claim.units:,} is {share:.2g}",
        )
    if promised.delta:
        add(
            "delta is small enough to promise anything",
            promised.delta < MOST_DELTA,
            f"delta is {number(promised.delta)}; at 1 every mechanism is private",
        )
    add("The protected unit is stated", claim.unit != "unstated", f"it is {claim.unit}")
    add(
        "Neighbouring data sets are stated",
        claim.adjacency != "unstated",
        f"they are {claim.adjacency.replace('_', ' ')}",
    )
    most = max(claim.releases.values())
    if most > 1:
        add(
            "All releases are counted",
            claim.composes,
            f"{'it counts' if claim.composes else 'the claim speaks of one; there are'} {most:,}",
        )
    found += [ClaimCondition(**c.model_dump()) for c in claim.conditions]
    return found


def _verdict(claim: Claim, rows: Mapping[Role, ClaimRow]) -> tuple[str, Severity]:
    promised, true = claim.promise.epsilon, rows["actual"]
    composed = true.epsilon[-1]
    last = list(claim.releases)[-1]
    if claim.promise.delta >= MOST_DELTA:
        cost = f"at delta {number(true.delta)} it costs {spelled(composed)}"
        return (f"Vacuous: delta {claim.promise.delta:g} promises next to nothing; {cost}.", Severity.MEDIUM)
    if math.isinf(composed):
        return (
            "No bound: without noise, or without a clip, nothing limits the loss at any delta below 1.",
            Severity.HIGH,
        )
    if promised is None:
        loose = composed > MOST_EPSILON
        means = ", which excludes no attack" if loose else ""
        return (
            f"No epsilon is stated; {last} cost {spelled(composed)}{means}.",
            Severity.HIGH if loose else Severity.NONE,
        )
    if composed <= promised:
        return f"Consistent: {last} cost at most {spelled(composed)}.", Severity.NONE
    measured = rows.get("measured")
    if measured and measured.epsilon[0] > promised:
        shown = f"a measured sensitivity alone shows {spelled(_shown(measured.epsilon[0]))} for one release"
        severity = Severity.CRITICAL
    else:
        shown, severity = f"one release costs {spelled(true.epsilon[0])}", Severity.HIGH
    ratio = composed / promised
    return (f"Refuted: {shown}, and {last} cost {spelled(composed)}, {spelled(ratio)} times the claim.", severity)


def _shown(value: float) -> float:
    """A lower bound, rounded down to three digits."""
    if not value or math.isinf(value):
        return value
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def spelled(value: float) -> str:
    """Three digits; powers of ten beyond a million."""
    if math.isinf(value):
        return "infinity"
    return f"{value:.2e}".replace("e+0", "e").replace("e+", "e") if value >= 1e6 else number(value)


def _promise(claim: Claim) -> str:
    if claim.promise.epsilon is None:
        return "no number" if claim.promise.delta == 0 else f"delta {number(claim.promise.delta)}"
    return f"({number(claim.promise.epsilon)}, {number(claim.promise.delta)})"


def _line(text: str) -> str:
    return " ".join(text.split())
