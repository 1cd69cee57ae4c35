"""What conditions of a policy read of one evidence: the end of its interval that speaks against the attack."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.verdict.policy import Statistic

Numbers = NDArray[np.float64] | float


def statistic(e: Evidence, name: Statistic) -> float:
    """The end of the interval that is least favourable to the attack; NaN where it has none."""
    if e.interval is None or not math.isfinite(e.value):
        return math.nan
    low, high = e.interval
    sign = 1.0 if e.higher_is_worse else -1.0
    value, end = sign * e.value, sign * (low if e.higher_is_worse else high)
    if name == "value":
        return end if e.higher_is_worse else math.nan
    if not e.baselines or (name == "residual_risk" and not e.higher_is_worse):
        return math.nan
    ends = []
    for b in e.baselines:
        blind = sign * b.value
        if b.interval is None:
            blind_end = blind
        else:
            blind_end = sign * (b.interval[1] if e.higher_is_worse else b.interval[0])
        ends.append(float(compute_statistic(name, value, end, blind, blind_end)))
    return min(ends) if not any(math.isnan(x) for x in ends) else math.nan


def compute_statistic(name: Statistic, value: Numbers, end: Numbers, blind: Numbers, blind_end: Numbers) -> Any:
    """A statistic beside one baseline, of numbers or arrays; higher values are worse.

    `end` is the lower end of the attack, `blind_end` the upper one of the adversary. For residual_risk and excess
    the two intervals are combined as independent estimates (MOVER: Zou, Donner. Stat. Med. 27, 2008, eq. 3). NaN
    for the residual risk where guessing is always right: nothing is left to risk.
    """
    if name == "value":
        return end
    down, up = np.maximum(0.0, np.subtract(value, end)), np.maximum(0.0, np.subtract(blind_end, blind))
    excess = np.subtract(value, blind)
    if name == "excess":
        return excess - np.hypot(down, up)
    left = np.where(np.less(blind, 1), np.subtract(1.0, blind), np.nan)
    return excess / left - np.hypot(down / left, up * np.subtract(1.0, value) / left**2)


def clear(e: Evidence) -> bool:
    """Whether it is clear of every baseline."""
    return statistic(e, "excess") > 0
