"""Exact: Gaussian releases add up in closed form, without looseness and without numerics to tune.

Balle, Wang. Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and
Optimal Denoising. ICML 2018. arXiv:1805.06530, Theorem 8. A Gaussian release of multiplier z is
mu-GDP with mu = 1/z, and releases compose exactly (Dong, Roth, Su. arXiv:1905.02383, Cor. 2):

    mu = sqrt(sum 1/z_t^2),   delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

A Laplace or discrete Laplace release of scale b and L1 sensitivity s costs s/b at delta = 0, randomised
response its own epsilon, and such costs add up. One Laplace release alone costs
s/b + 2 ln(1 - delta), which is exact.

Sampling is not credited: each release counts as if its client had surely taken part (q = 1), which
is right for an observer who sees who takes part and an upper bound for all others.
"""

import math
from collections.abc import Sequence

from fedaudit.audit.accounting.accountant import Accountant, Bound, Card
from fedaudit.audit.accounting.terms import Terms, drop_sampling, terms, total_mu
from fedaudit.fl.ledger import Release

LARGE_MU = 1e4  # beyond it, the tail bound below is exact to 8 digits and the search is not


class Exact(Accountant):
    card = Card(
        title="Exact Gaussian composition",
        source="arXiv:1805.06530, Thm 8; arXiv:1905.02383, Cor. 2",
        adjacency=("add_or_remove_one", "replace_one"),
    )

    def refuses(self, release: Release) -> str | None:
        return None  # without credit for sampling, every mechanism of the ledger has a closed form

    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        note = "Sampling of clients is not credited: every release counts in full."
        sampled = any(r.sampling != "none" and r.sample_rate < 1 for r in releases)
        return Bound(epsilon=closed_form(drop_sampling(terms(releases)), delta), note=note if sampled else "")


def closed_form(counts: Terms, delta: float) -> float:
    """epsilon of unsampled terms at `delta`."""
    normal = {t: n for t, n in counts.items() if t.mechanism == "gaussian"}
    pure = {t: n for t, n in counts.items() if t.mechanism != "gaussian"}
    total = math.fsum(n / t.z for t, n in pure.items())
    if not normal and sum(pure.values()) == 1 and next(iter(pure)).mechanism == "laplace":
        return max(0.0, total + 2 * math.log1p(-delta))
    return total + gaussian(total_mu(normal), delta)


def gaussian(mu: float, delta: float) -> float:
    """epsilon of a mu-GDP Gaussian mechanism at `delta`; 0 for mu = 0, infinity for delta = 0."""
    if mu == 0:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    if mu > LARGE_MU:
        from statistics import NormalDist

        # P[loss > eps] = Phi(mu/2 - eps/mu) >= delta(eps), so this is never below the exact value
        return max(0.0, mu * mu / 2 - mu * NormalDist().inv_cdf(delta))
    import dp_accounting  # slow to import
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):  # of probabilities that are 0 in double precision
        return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta))
