"""A lower bound of epsilon from counted errors."""

import math

from fedaudit.attacks.stats import clopper_pearson
from fedaudit.audit.mechanism.answers import LEVEL


def bound_below(hits: int, of: int, alarms: int, among: int, delta: float) -> float:
    """epsilon at least, from an event that `hits` of `of` calls on one update and `alarms` on the other had."""
    often, rare = clopper_pearson(hits, of, LEVEL)[0], clopper_pearson(alarms, among, LEVEL)[1]
    return max(0.0, math.log(often - delta) - math.log(rare)) if often > delta else 0.0
