"""What a clipped and noised training certifies against backdoors: the radius of CRFL.

Xie, Chen, Chen, Li. CRFL: Certifiably Robust Federated Learning against Backdoor Attacks. ICML 2021.
arXiv:2106.08283, Theorem 3: with every shared model scaled to a norm of rho_t and noised by sigma_t, the class
that the noised last model gives most often stays the same where each of R attackers changes its poisoned
examples by less than

    sqrt( -log(1 - (sqrt(p_A) - sqrt(p_B))^2) sigma^2
          / (2 R L^2 sum_i (p_i gamma_i tau_i eta_i q_i / n_i)^2 prod_{t > t_adv} (2 Phi(rho_t / sigma_t) - 1)))

p_A and p_B are a lower and an upper bound on the probabilities of the first and second class, over the noise.
The theorem is for models whose gradient moves at most L times as far as an example does; for multi-class
logistic regression on examples of length 1 the paper has L = sqrt(2 + 2 rho + rho^2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist

import scipy

from fedaudit.fl.runtime.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """One malicious client in the one round in which it attacks."""

    weight: float  # p_i, of the mean
    scale: float  # gamma_i, what is sent over what was learnt
    steps: int  # tau_i, local steps
    rate: float  # eta_i, of these steps
    poisoned: float  # q_i / n_i, share of a batch


def certify_radius(
    *,
    first: float,
    second: float,
    noise: float,
    lipschitz: float,
    attackers: Sequence[Attacker],
    later: Sequence[tuple[float, float]] = (),
) -> float:
    """The distance below which no change of a poisoned example changes the answer; 0: nothing is certified.

    `first` and `second` bound the probabilities of the two likeliest classes, `noise` is the standard deviation
    in the attackers' round, and `later` holds (rho, sigma) of each round after it. Raises UserError for
    probabilities out of 0..1, no noise, or no attacker.
    """
    if not (0 <= second <= 1 and 0 <= first <= 1):
        raise UserError(
            f"probabilities must lie between 0 and 1, got {first} and {second}",
            hint="give shares of noised models",
        )
    if not noise > 0 or not lipschitz > 0 or not attackers or any(s <= 0 for _, s in later):
        raise UserError(
            "a certificate needs noise in every round, a Lipschitz constant above 0, and at least one attacker",
            hint="set aggregator.sigma above 0",
        )
    if first <= second:
        return 0.0
    reach = sum((a.weight * a.scale * a.steps * a.rate * a.poisoned) ** 2 for a in attackers)
    forgotten = 1.0
    for rho, sigma in later:
        forgotten *= 2 * NormalDist().cdf(rho / sigma) - 1
    below = 2 * len(attackers) * lipschitz**2 * reach * forgotten
    apart = 1 - (sqrt(first) - sqrt(second)) ** 2
    if not below or apart <= 0:
        return float("inf")
    return sqrt(-log(apart) * noise**2 / below)


def lipschitz_of_regression(rho: float) -> float:
    """L of multi-class logistic regression with weights of norm rho, on examples of length 1 (lemma 3)."""
    return sqrt(2 + 2 * rho + rho**2)


def bound_votes(first: int, total: int, error: float = 0.001) -> tuple[float, float]:
    """Bounds on the probabilities of the first class and of any other, of `first` among `total` noised models.

    One-sided Clopper-Pearson; both hold with probability 1 - error.
    """
    if not 0 <= first <= total or total < 1:
        raise UserError(f"{first} of {total} noised models is no count", hint="count votes of at least one model")
    lower = float(scipy.stats.beta.ppf(error, first, total - first + 1)) if first else 0.0
    return lower, 1 - lower
