"""Two-point game: a lower bound on epsilon from how often an adversary mistakes one input for another.

Jagielski, Ullman, Oprea. Auditing Differentially Private Machine Learning. NeurIPS 2020.
arXiv:2006.07709, sec. 3; statistics as in Nasr et al. arXiv:2101.04535. Of n + n independent runs on a
fixed pair of neighbours, count false positives and negatives at a threshold chosen before. Every
(epsilon, delta)-DP mechanism satisfies (Kairouz, Oh, Viswanath. arXiv:1311.0776, Thm 2.1)

    FPR + e^eps FNR >= 1 - delta   and   e^eps FPR + FNR >= 1 - delta,

so upper Clopper-Pearson ends of both rates, alpha/2 each, give a lower end of epsilon. No errors at
all show no more than `ceiling`: the bound saturates with the number of runs, and must say so.
"""

import math

from fedaudit.attacks.stats import ALPHA, clopper_pearson
from fedaudit.audit.canaries.columns import Lower
from fedaudit.audit.canaries.scores import Errors


def from_rates(fpr: float, fnr: float, delta: float) -> float:
    """The least epsilon that error rates this small allow; infinity for a rate of 0."""
    best = 0.0
    for one, other in ((fpr, fnr), (fnr, fpr)):
        left = 1 - delta - one
        if left > 0:
            best = max(best, math.log(left / other) if other > 0 else math.inf)
    return best


def epsilon(errors: Errors, delta: float, alpha: float = ALPHA) -> float:
    """Lower end at confidence 1 - alpha."""
    _, fpr = clopper_pearson(errors.false_positives, errors.outside, alpha)
    _, fnr = clopper_pearson(errors.false_negatives, errors.inside, alpha)
    return from_rates(fpr, fnr, delta)


def ceiling(inside: int, outside: int, delta: float, alpha: float = ALPHA) -> float:
    """What runs without any error would show."""
    perfect = Errors(false_positives=0, false_negatives=0, inside=inside, outside=outside)
    return epsilon(perfect, delta, alpha)


def lower(errors: Errors, delta: float, alpha: float = ALPHA) -> Lower:
    return Lower(
        audit="two-point game",
        epsilon=epsilon(errors, delta, alpha),
        delta=delta,
        confidence=1 - alpha,
        trials=errors.inside + errors.outside,
        ceiling=ceiling(errors.inside, errors.outside, delta, alpha),
        note=f"{errors.false_positives} false positives in {errors.outside}, "
        f"{errors.false_negatives} false negatives in {errors.inside}",
    )
