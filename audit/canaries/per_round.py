"""Per round: bound the noise multiplier of one step from many of them, then compose it.

Nasr et al. Tight Auditing of Differentially Private Machine Learning. USENIX Security 2023.
arXiv:2302.07956, sec. 4. Of steps with and without the canary, error rates at a threshold fixed before
give mu = Phi^-1(1 - FPR) - Phi^-1(FNR) at their upper Clopper-Pearson ends; z = 1/mu is an upper end of
the noise multiplier, and the accountant makes it a bound for the declared sampling and rounds.

`shift` is ours: where the scores themselves are Gaussian, their shift in standard deviations has an
exact interval from the noncentral t distribution. It is tighter, and assumes more.
"""

import math
from typing import Any

import numpy as np

from fedaudit.attacks.stats import ALPHA, clopper_pearson
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.accountants.pld import bound
from fedaudit.audit.accounting.terms import Term
from fedaudit.audit.canaries.columns import Lower
from fedaudit.audit.canaries.scores import Errors, Scored

GAUSSIAN = "a loss of Gaussian shape"
SCORES = "Gaussian scores of equal spread"


def mu(errors: Errors, alpha: float = ALPHA) -> float:
    """Lower end of the step's mu at confidence 1 - alpha; never below 0."""
    from scipy.special import ndtri

    _, fpr = clopper_pearson(errors.false_positives, errors.outside, alpha)
    _, fnr = clopper_pearson(errors.false_negatives, errors.inside, alpha)
    return max(0.0, float(-ndtri(fpr) - ndtri(fnr)))  # never its absolute value: that invents loss


def composed(step: float, delta: float, rounds: int = 1, rate: float = 1.0) -> float:
    """epsilon of `rounds` Gaussian steps of mu `step`, each with probability `rate` in secret."""
    if step == 0 or rounds == 0 or rate == 0:
        return 0.0
    if rate == 1:
        return gaussian(step * math.sqrt(rounds), delta)
    return bound({Term("gaussian", 1 / step, "poisson", rate): rounds}, delta).epsilon


def lower(errors: Errors, delta: float, *, rounds: int = 1, rate: float = 1.0, alpha: float = ALPHA) -> Lower:
    """A bound for the whole run from the errors of single steps."""
    perfect = Errors(false_positives=0, false_negatives=0, inside=errors.inside, outside=errors.outside)
    found = mu(errors, alpha)
    z = f"{1 / found:.4g}" if found else "infinity"
    return Lower(
        audit="steps, composed" if rounds > 1 else "Gaussian two-point game",
        epsilon=composed(found, delta, rounds, rate),
        delta=delta,
        confidence=1 - alpha,
        trials=errors.inside + errors.outside,
        ceiling=composed(mu(perfect, alpha), delta, rounds, rate),
        assumes=GAUSSIAN,
        note=f"noise multiplier at most {z}",
    )


def shift(scored: Scored, alpha: float = ALPHA) -> float:
    """Lower end of (mean in - mean out) / standard deviation, for Gaussian scores; never below 0."""
    from scipy import optimize, stats

    a, b = scored.score[scored.inside], scored.score[~scored.inside]
    if min(len(a), len(b)) < 2:
        return 0.0
    free = len(a) + len(b) - 2
    spread = math.sqrt((_squares(a) + _squares(b)) / free)
    root = math.sqrt(1 / len(a) + 1 / len(b))
    if spread == 0:
        return math.inf if a.mean() > b.mean() else 0.0
    t = float(a.mean() - b.mean()) / (spread * root)

    # P[T >= t] rises with the noncentrality; its lower end is where that is alpha
    def excess(nc: float) -> float:
        return float(stats.nct.sf(t, free, nc)) - alpha

    if float(stats.t.sf(t, free)) > alpha:
        return 0.0
    half = 8 * math.sqrt(1 + t * t / (2 * free))
    if t > 300:  # scipy's noncentral t gives out there; its normal approximation does not
        return root * max(0.0, t - half / 8 * float(stats.norm.isf(alpha)))
    return root * float(optimize.brentq(excess, max(0.0, t - half), t + half))


def shift_lower(scored: Scored, delta: float, alpha: float = ALPHA) -> Lower:
    found = shift(scored, alpha)
    return Lower(
        audit="Gaussian shift",
        epsilon=gaussian(found, delta),
        delta=delta,
        confidence=1 - alpha,
        trials=len(scored),
        ceiling=math.inf,
        assumes=SCORES,
        note=f"mu at least {found:.3f}",
    )


def _squares(x: "np.ndarray[Any, Any]") -> float:
    return float(((x - x.mean()) ** 2).sum())
