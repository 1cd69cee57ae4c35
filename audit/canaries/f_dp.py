"""f-DP in one run: as `one_run`, but against a whole trade-off curve, and therefore tighter.

Mahloujifar, Melis, Chaudhuri. Auditing f-Differential Privacy in One Run. 2024. arXiv:2410.22235,
Algorithm 3, for the curves of mu-Gaussian DP: with h = alpha (r - v)/m and s = alpha v/m, for
i = v - 1, ..., 0:  h' = max(h, Phi(Phi^-1(s) - mu)),  s <- s + i/(r - i) (h' - h),  h <- h'.
mu is refuted where s + h > r/m. The largest such mu gives epsilon(mu, delta) exactly.

Conditional on the claim's shape: it refutes "mu-GDP", and through it an (epsilon, delta) claim only
where the claimed mechanism is Gaussian.
"""

from functools import lru_cache

import numpy as np

from fedaudit.attacks.stats import ALPHA
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.canaries.columns import Lower
from fedaudit.audit.canaries.scores import Guesses, Scored, split_guesses

MOST = 60.0  # mu beyond it is not searched


def refuted(guesses: Guesses, mu: float, alpha: float = ALPHA) -> bool:
    """Whether a mu-GDP run guesses this well with probability at most alpha."""
    from scipy.special import ndtr, ndtri

    m, r, v = guesses.canaries, guesses.made, guesses.right
    if v == 0:
        return False
    h, s = alpha * (r - v) / m, alpha * v / m
    for i in range(v - 1, -1, -1):
        if s + h > r / m:
            return True  # both only grow
        higher = max(h, float(ndtr(ndtri(min(s, 1.0)) - mu)))
        s, h = s + i / (r - i) * (higher - h), higher
    return s + h > r / m


@lru_cache(maxsize=4096)
def mu(guesses: Guesses, alpha: float = ALPHA) -> float:
    """The largest mu that these guesses refute; 0 where none is."""
    if not refuted(guesses, 0.0, alpha):
        return 0.0
    low, high = 0.0, MOST
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(guesses, middle, alpha) else (low, middle)
    return low


def lower(scored: Scored, delta: float, rng: np.random.Generator, alpha: float = ALPHA) -> Lower:
    """How many to guess on is chosen on half of the canaries and scored on the other half."""
    made = split_guesses(scored, lambda g: mu(g, alpha), rng)
    kept = made.canaries
    return Lower(
        audit="f-DP in one run",
        epsilon=gaussian(mu(made, alpha), delta),
        delta=delta,
        confidence=1 - alpha,
        trials=made.made,
        ceiling=gaussian(mu(Guesses(canaries=kept, made=kept, right=kept), alpha), delta),
        assumes="a loss of Gaussian shape",
        note=f"{made.right} of {made.made} guesses right, on {kept} canaries; refutes mu = {mu(made, alpha):.3f}",
    )
