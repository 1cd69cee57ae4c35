"""PRV: privacy random variables of Poisson-sampled Gaussian noise, with an interval for the truth.

Gopi, Lee, Wutschitz. Numerical Composition of Differential Privacy. NeurIPS 2021. arXiv:2106.02848,
Algorithm 1, as Opacus has it. The bound is the upper end of the interval (epsilon error 0.01), and
`lower` its lower end: an independent check of PLD from both sides.

Above an epsilon of about 500, and at very low noise, its grid is too coarse; it then says nothing. Nor
does it for more than 16 different releases: with 70 its interval was [8.593, 8.614], where PLD and a
Fourier transform of our own give 8.143 and 8.139 (Opacus 1.6). And nor for a delta below 1e-9, where the
error that it allows itself is lost in rounding: at 1e-12 its lower end was above the truth.
"""

import math
import warnings

from fedaudit.audit.accounting.accountant import Bound, Card, Numerical
from fedaudit.audit.accounting.accountants._opacus import load_accountants
from fedaudit.audit.accounting.accountants.rdp import explain_refusal, refusal
from fedaudit.audit.accounting.terms import Terms
from fedaudit.fl.ledger import Release

EPSILON_ERROR = 0.01
MOST_TERMS = 16
LEAST_DELTA = 1e-9


def bound(counts: Terms, delta: float) -> Bound:
    """The cost of Gaussian terms; imports a part of Opacus, and with it scipy."""
    if reason := explain_refusal(counts, "PRV"):
        raise ValueError(reason)
    if delta < LEAST_DELTA:
        raise ArithmeticError(f"its error of delta / 1000 is below the precision of its sums at {delta:g}")
    if len(counts) > MOST_TERMS:
        raise ArithmeticError(f"more than {MOST_TERMS} different releases")
    accountant = load_accountants().prv()
    accountant.history = [(t.z, t.rate, n) for t, n in sorted(counts.items())]
    error = delta / 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        composed = accountant._get_dprv(eps_error=EPSILON_ERROR, delta_error=error)
        low, _, high = composed.compute_epsilon(delta, error, EPSILON_ERROR)
    if not math.isfinite(high):
        raise ArithmeticError("its grid is too coarse for so large a loss")
    return Bound(epsilon=max(0.0, float(high)), lower=max(0.0, float(low)))


class PRV(Numerical):
    card = Card(
        title="PRV", source="arXiv:2106.02848, Alg. 1 (Opacus)", adjacency=("add_or_remove_one", "replace_one")
    )
    function = staticmethod(bound)

    def declines(self, counts: Terms) -> str:
        return explain_refusal(counts, "PRV")

    def refuses(self, release: Release) -> str | None:
        return refusal(release, "PRV")
