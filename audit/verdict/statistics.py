"""What conditions of a policy read of one evidence: the end of its interval that speaks against the attack."""

import math

from fedaudit.attacks import stats
from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.verdict.policy import Statistic


def statistic(e: Evidence, name: Statistic) -> float:
    """The end of the interval that is least favourable to the attack; NaN where it has none.

    For residual_risk and excess the two intervals are combined as independent estimates (MOVER: Zou,
    Donner. Stat. Med. 27, 2008, eq. 3), against the strongest blind adversary.
    """
    if e.interval is None or not math.isfinite(e.value):
        return math.nan
    low, high = e.interval
    sign = 1.0 if e.higher_is_worse else -1.0
    value, end = sign * e.value, sign * (low if e.higher_is_worse else high)
    if name == "value":
        return sign * end if e.higher_is_worse else math.nan
    if not e.baselines:
        return math.nan
    ends = []
    for b in e.baselines:
        blind = sign * b.value
        if b.interval is None:
            blind_end = blind
        else:
            blind_end = sign * (b.interval[1] if e.higher_is_worse else b.interval[0])
        a, c = max(0.0, value - end), max(0.0, blind_end - blind)
        if name == "excess":
            ends.append(value - blind - math.hypot(a, c))
        elif blind < 1 and e.higher_is_worse:
            left = 1 - blind
            ends.append((value - blind) / left - math.hypot(a / left, c * (1 - value) / left**2))
        else:
            ends.append(math.nan)  # guessing is always right: nothing is left to risk
    return min(ends) if not any(math.isnan(x) for x in ends) else math.nan


def clear(e: Evidence) -> bool:
    """Whether it is clear of every blind adversary."""
    return statistic(e, "excess") > 0


def detectable(e: Evidence) -> float:
    """The smallest leak that this evidence would probably have shown, as a residual risk.

    Infinity for evidence that no interval or no baseline goes with, and for likeness of images
    (dB, index), of which there is no share to take.
    """
    if e.interval is None or e.strongest is None or e.unit != "fraction" or not e.higher_is_worse:
        return math.inf
    alpha = stats.corrected(1 - e.confidence, e.looks)
    return stats.detectable(e.value, e.interval, e.strongest.value, alpha)
