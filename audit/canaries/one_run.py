"""One run: a lower bound on epsilon from guessing which canaries took part in a single run.

Steinke, Nasr, Jagielski. Privacy Auditing with One (1) Training Run. NeurIPS 2023. arXiv:2305.08846,
Theorem 5.2. m canaries are each in by an independent fair coin; of r guesses v are right. With
q = e^eps / (1 + e^eps) and B ~ Binomial(r, q), an (eps, delta)-DP run has

    P[at least v right] <= P[B >= v] + 2 m delta max_{1 <= i <= v} P[v > B >= v - i] / i.

Valid however the canaries depend on each other. Not tight: 1000 perfect guesses show 5.81. Coins that
are not independent (exactly half of the canaries in) break the theorem.
"""

import math
from functools import lru_cache

import numpy as np

from fedaudit.attacks.stats import ALPHA
from fedaudit.audit.canaries.columns import Lower
from fedaudit.audit.canaries.scores import Guesses, Scored, split_guesses

MOST = 100.0  # epsilon beyond it is not searched


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of guessing this well that an (epsilon, delta)-DP run allows."""
    from scipy.special import bdtrc, gammaln, xlog1py, xlogy

    m, r, v = guesses.canaries, guesses.made, guesses.right
    if v == 0:
        return 1.0
    q = 1 / (1 + math.exp(-epsilon))
    above = float(bdtrc(v - 1, r, q))
    if delta == 0:
        return min(1.0, above)
    i = np.arange(1, v + 1)
    # P[v > B >= v - i], by summing probabilities: the difference of two tails would cancel
    k = v - i
    ways = gammaln(r + 1) - gammaln(k + 1) - gammaln(r - k + 1)
    mass = np.cumsum(np.exp(ways + xlogy(k, q) + xlog1py(r - k, -q)))
    return min(1.0, above + 2 * m * delta * float((mass / i).max()))


@lru_cache(maxsize=4096)
def epsilon(guesses: Guesses, delta: float, alpha: float = ALPHA) -> float:
    """The largest epsilon that these guesses refute at confidence 1 - alpha; 0 where none is."""
    if p_value(guesses, 0.0, delta) > alpha:
        return 0.0
    low, high = 0.0, MOST
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(guesses, middle, delta) <= alpha else (low, middle)
    return low


def lower(scored: Scored, delta: float, rng: np.random.Generator, alpha: float = ALPHA) -> Lower:
    """How many to guess on is chosen on half of the canaries and scored on the other half."""
    made = split_guesses(scored, lambda g: epsilon(g, delta, alpha), rng)
    kept = made.canaries
    return Lower(
        audit="one run",
        epsilon=epsilon(made, delta, alpha),
        delta=delta,
        confidence=1 - alpha,
        trials=made.made,
        ceiling=epsilon(Guesses(canaries=kept, made=kept, right=kept), delta, alpha),
        note=f"{made.right} of {made.made} guesses right, on {kept} canaries",
    )
