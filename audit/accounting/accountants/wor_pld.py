"""WOR-PLD: a fixed number of clients drawn without replacement, which is how FL usually samples.

Zhu, Dong, Wang. Optimal Accounting of Differential Privacy via Characteristic Function. AISTATS
2022. arXiv:2106.08567, Prop. 30 (subsets of fixed size, replace-one). With P = N(1, z^2), Q = N(0, z^2)
for one release, z relative to the replace-one sensitivity, and q = drawn / all, no pair of
neighbours gives a larger hockey-stick divergence than

    delta(eps) = H_{e^eps}((1-q) Q + q P || Q)                       eps >= 0
    delta(eps) = 1 - e^eps + e^eps delta(-eps)                       eps < 0

The first line is q delta_Gauss(ln(1 + (e^eps - 1)/q)), the amplification theorem of Balle, Barthe,
Gaboardi (arXiv:1807.01647) for subsets under replacement; the second is what a symmetric relation
gives. Their slopes at eps = 0 keep the curve convex in e^eps, so that a pair of distributions has it.

The curve is made a distribution by pessimistic connect-the-dots (arXiv:2207.04380, Alg. 1) and
composed by dp-accounting. Unsampled releases beside the sampled ones are composed with them.

The truth lies between the cost of Poisson sampling at the same z (a neighbouring pair that reaches
it: all others send -C, the target sends +C) and this bound; both are given.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.accounting.accountant import Bound, Card, Numerical
from fedaudit.audit.accounting.accountants import pld
from fedaudit.audit.accounting.terms import Term, Terms, coarsen_terms, merge_gaussians
from fedaudit.fl.ledger import Release

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

SIZED = "fixed_without_replacement"


def explain_refusal(counts: Terms) -> str:
    """Why there is no dominating curve for one of these terms; empty where there is."""
    if any(t.sampled and t.sampling != SIZED for t in counts):
        return "WOR-PLD knows no Poisson sampling; `pld` does"
    if other := next((t.mechanism for t in counts if t.sampled and t.mechanism != "gaussian"), ""):
        return f"WOR-PLD samples Gaussian noise only, not {other.replace('_', ' ')}"
    return ""


def bound(counts: Terms, delta: float) -> Bound:
    """The cost of terms, and that of Poisson sampling at the same rates as `lower`."""
    few = coarsen_terms(merge_gaussians(counts), pld.MOST_TERMS)
    as_poisson = {t._replace(sampling="poisson") if t.sampled else t: n for t, n in few.items()}
    found = pld.compose_terms(few, delta, distribution)
    return Bound(
        epsilon=found.epsilon,
        lower=pld.bound(as_poisson, delta).epsilon if len(few) == len(counts) else None,
        note=pld.describe_computation(found),
    )


def distribution(term: Term, step: float) -> "PrivacyLossDistribution":
    """The dominating curve of one sampled Gaussian release, as a distribution on a grid."""
    if reason := explain_refusal({term: 1}):
        raise ValueError(reason)
    if not term.sampled:
        return pld.distribution(term, step)
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    full = term._replace(rate=1.0)
    last = math.ceil(_bound_loss(full if term.told else term) / step)
    losses = np.arange(-last, last + 1)
    deltas = curve(term, losses * step)
    if term.told:  # who is drawn, and whom it knows, is no likelier than the rate says
        deltas = pld.mix_told(term, losses * step, deltas, curve(full, losses * step))
    return PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(step, losses, deltas))


def curve(term: Term, epsilon: NDArray[np.floating]) -> NDArray[np.floating]:
    """delta at each epsilon, as above; shape as given."""
    from scipy.special import log_ndtr

    z, q, size = term.z, term.rate, np.abs(epsilon)
    # the loss ln((1-q) + q e^{(2x-1)/2z^2}) exceeds eps where x > t
    t = z**2 * (np.log(-np.expm1(-size) + q * np.exp(-size)) + size - math.log(q)) + 0.5
    hit, miss = np.exp(log_ndtr((1 - t) / z)), log_ndtr(-t / z)
    upper = q * hit + (1 - q) * np.exp(miss) - np.exp(size + miss)
    upper = np.clip(upper, 0.0, 1.0)
    negative = -np.expm1(-size) + np.exp(-size) * upper
    found: NDArray[np.floating] = np.where(epsilon >= 0, upper, negative)
    return found


def _bound_loss(term: Term) -> float:
    """A loss that one release exceeds with probability below 1e-20 only."""
    x = 1 + 9.3 * term.z
    missed = math.log1p(-term.rate) if term.rate < 1 else -math.inf
    return float(np.logaddexp(missed, math.log(term.rate) + (2 * x - 1) / (2 * term.z**2)))


class WorPLD(Numerical):
    card = Card(title="WOR-PLD", source="arXiv:2106.08567, Prop. 30", adjacency=("replace_one",))
    function = staticmethod(bound)
    least_delta = pld.LEAST_DELTA

    def declines(self, counts: Terms) -> str:
        return explain_refusal(counts)

    def refuses(self, release: Release) -> str | None:
        if release.adjacency != "replace_one":
            return "WOR-PLD speaks of replaced clients: with one less, the draw is another one"
        if release.sample_rate == 1 or release.sampling not in ("poisson", SIZED):
            return None
        if release.sampling == "poisson":
            return "WOR-PLD knows no Poisson sampling; `pld` does"
        if release.mechanism != "gaussian":
            return f"WOR-PLD samples Gaussian noise only, not {release.mechanism.replace('_', ' ')}"
        return None
