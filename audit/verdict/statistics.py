"""Whether a measure is clear of its baselines, by the ends of its interval that speak against the attack."""

import math

from fedaudit.attacks.evidence import Baseline, Evidence


def clear(e: Evidence) -> bool:
    """Whether it beats every baseline, with the whole interval; not without an interval, or without baselines."""
    if e.interval is None or not math.isfinite(e.value) or not e.baselines:
        return False
    return all(bound_excess(e, b)[0] > 0 for b in e.baselines)


def bound_excess(e: Evidence, b: Baseline) -> tuple[float, float]:
    """Both ends of the distance from one baseline; higher is worse for people.

    The two intervals are combined as independent estimates (MOVER: Zou, Donner. Stat. Med. 27, 2008, eq. 3).
    Raises ValueError without an interval.
    """
    if e.interval is None:
        raise ValueError(f"{e.measure} has no interval")
    sign = 1.0 if e.higher_is_worse else -1.0
    low, high = sorted(sign * end for end in e.interval)
    value, blind = sign * e.value, sign * b.value
    least, most = sorted(sign * end for end in b.interval or (b.value, b.value))
    down, up = max(0.0, value - low), max(0.0, high - value)
    near, far = max(0.0, blind - least), max(0.0, most - blind)
    return value - blind - math.hypot(down, far), value - blind + math.hypot(up, near)
