"""Whether a measure is clear of its baselines, by the ends of its interval that speak against the attack."""

import math

from fedaudit.attacks.evidence import Baseline, Evidence


def clear(e: Evidence) -> bool:
    """Whether it beats every baseline, with the whole interval; not without an interval, or without baselines."""
    if e.interval is None or not math.isfinite(e.value) or not e.baselines:
        return False
    return all(_measure_excess(e, b) > 0 for b in e.baselines)


def _measure_excess(e: Evidence, b: Baseline) -> float:
    """Lower end of the distance from one baseline; higher is worse for people.

    The two intervals are combined as independent estimates (MOVER: Zou, Donner. Stat. Med. 27, 2008, eq. 3).
    """
    assert e.interval is not None
    sign, ends = (1.0, e.interval) if e.higher_is_worse else (-1.0, e.interval[::-1])
    down = max(0.0, sign * (e.value - ends[0]))
    blind = b.interval or (b.value, b.value)
    up = max(0.0, sign * ((blind[1] if e.higher_is_worse else blind[0]) - b.value))
    return sign * (e.value - b.value) - math.hypot(down, up)
