"""Numbers: whether epsilon, delta and the noise itself can mean what they seem to say."""

import math

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.lint import Flaw, RunRecord, describe
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.result import Severity

# Policy of ours: below, a bound of one release allows 99.9 % true positives at 1 % false ones
LEAST_Z, MOST_EPSILON = 0.3, 50.0
MOST_DELTA = 0.1  # at 1 every mechanism is private; at 0.1 one run in ten may publish everything
PUBLISHING = "So large a delta lets the mechanism publish some unit in clear and keep its guarantee."
FLOAT32 = 2.0**-23  # spacing of single-precision numbers around 1, where weights are


def l2_cheap_claim(record: RunRecord) -> Flaw | None:
    """A release costs more than its protection claims."""
    stating = [r for r in record.noised if r.mechanism == "gaussian" and r.claimed_epsilon and r.claimed_delta]
    alike = {(r.kind, r.noise_multiplier, r.claimed_epsilon, r.claimed_delta): r for r in reversed(stating)}
    for (_, z, claimed, delta), r in alike.items():
        exact = gaussian(1 / z, delta or 0) if z else math.inf
        if exact > (claimed or 0):
            return Flaw(
                what=f"{describe([r]).capitalize()} claims epsilon {claimed:g} at delta {delta:g}; its "
                f"exact cost is {exact:.5g}.",
                remedy="Calibrate by the exact formula (Balle and Wang, arXiv:1805.06530), and round up.",
                severity=Severity.MEDIUM,
                reason="Whoever relies on the claim has less privacy than it says.",
            )
    return None


def l8_delta(record: RunRecord) -> Flaw | None:
    """delta is so large that the guarantee may fail for somebody."""
    spoken = {r.unit for r in record.noised}
    if not spoken:
        return None
    if record.delta >= MOST_DELTA:
        return Flaw(
            what=f"delta is {record.delta:g}; at 1 every mechanism is private.",
            remedy="Use a delta well below 1 / the number of units.",
            severity=Severity.MEDIUM,
            reason=PUBLISHING,
        )
    for unit in sorted(spoken):
        number = record.units.get(unit, 0)
        if number and record.delta > 1 / number:
            return Flaw(
                what=f"delta {record.delta:g} is above 1 / {number:,}: publishing one {unit} in clear, "
                "chosen at random, would satisfy it.",
                remedy=f"Use a delta well below {1 / number:.1e}.",
                severity=Severity.MEDIUM,
                reason=PUBLISHING,
            )
    return None


def l14_no_meaningful_bound(record: RunRecord) -> Flaw | None:
    """There is noise, and so little that its bound excludes no attack."""
    loose = [r for r in record.noised if 0 < r.noise_multiplier < LEAST_Z]
    high = [b for b in record.bounds if MOST_EPSILON < b.epsilon < math.inf]
    if not (loose or high):
        return None
    parts = []
    if loose:
        least = min(r.noise_multiplier for r in loose)
        parts.append(f"{describe(loose)} has a noise multiplier of {least:.3g}, below {LEAST_Z:g}")
    if high:
        b = max(high, key=lambda b: b.epsilon)
        parts.append(f"towards {b.observer} epsilon is {label_bound(b)} per {b.unit}, above {MOST_EPSILON:g}")
    text = "; ".join(parts)
    return Flaw(
        what=f"{text[:1].upper()}{text[1:]}.",
        remedy="More noise or fewer rounds; until then, do not call this differential privacy.",
        severity=Severity.LOW,
        reason="The bound says by itself how little it excludes.",
    )


def l15_below_resolution(record: RunRecord) -> Flaw | None:
    """The noise is finer than the numbers that carry it."""
    bad = [r for r in record.noised if r.noise_std <= max(FLOAT32, r.resolution)]
    if not bad:
        return None
    r = bad[0]
    return Flaw(
        what=f"{describe(bad).capitalize()}: noise of standard deviation {r.noise_std:.3g} on numbers with a "
        f"spacing of {max(FLOAT32, r.resolution):.3g} disappears in rounding.",
        remedy="More noise, or noise made for rounded numbers (`discrete_laplace`).",
        severity=Severity.HIGH,
        reason="Noise that rounding removes protects nobody.",
    )
