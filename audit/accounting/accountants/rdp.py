"""RDP: Rényi divergences of Poisson-sampled Gaussian noise, added up and converted; never too low.

Mironov, Talwar, Zhang. Rényi Differential Privacy of the Sampled Gaussian Mechanism. 2019.
arXiv:1908.10530; conversion of Balle et al. arXiv:1905.09982, Thm 21. As Opacus computes both.

A cross-check: 9 to 51 % above the tight bound on the settings we compared. Opacus returns a negative
epsilon at large delta; a loss is never below 0.
"""

import warnings

from fedaudit.audit.accounting.accountant import Bound, Card, Numerical
from fedaudit.audit.accounting.accountants._opacus import load_accountants
from fedaudit.audit.accounting.terms import Terms, coarsen_terms
from fedaudit.fl.ledger import Release

MOST_TERMS = 512


def bound(counts: Terms, delta: float) -> Bound:
    """The cost of Gaussian terms; imports a part of Opacus, and with it scipy."""
    if reason := explain_refusal(counts, "RDP"):
        raise ValueError(reason)
    few = coarsen_terms(counts, MOST_TERMS)
    accountant = load_accountants().rdp()
    accountant.history = [(t.z, t.rate, n) for t, n in sorted(few.items())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is the last one: the bound holds
        return Bound(epsilon=max(0.0, float(accountant.get_epsilon(delta))))


def explain_refusal(counts: Terms, name: str) -> str:
    """Why Opacus's accountants cannot take one of these terms; empty where they can."""
    if other := next((t.mechanism for t in counts if t.mechanism != "gaussian"), ""):
        return f"{name} covers Gaussian noise, not {other.replace('_', ' ')}"
    if any(t.sampling not in ("none", "poisson") for t in counts):
        return f"{name} knows no sampling of a fixed number; `wor_pld` does"
    return ""


def refusal(release: Release, name: str) -> str | None:
    """Why Opacus's accountants cannot take a release."""
    if release.mechanism != "gaussian":
        return f"{name} covers Gaussian noise, not {release.mechanism.replace('_', ' ')}"
    if release.sample_rate == 1 or release.sampling not in ("poisson", "fixed_without_replacement"):
        return None
    if release.sampling != "poisson":
        return f"{name} knows no sampling of a fixed number; `wor_pld` does"
    if release.adjacency == "replace_one":
        return f"{name} credits Poisson sampling for add-or-remove neighbours only"
    return None


class RDP(Numerical):
    card = Card(
        title="RDP", source="arXiv:1908.10530, sec. 3.3 (Opacus)", adjacency=("add_or_remove_one", "replace_one")
    )
    function = staticmethod(bound)

    def declines(self, counts: Terms) -> str:
        return explain_refusal(counts, "RDP")

    def refuses(self, release: Release) -> str | None:
        return refusal(release, "RDP")
