"""Certificates: how far any attack of k clients can move a score, by the noise that the ledger lists.

Central noise bounds what k clients change in the released model. With f the trade-off function between the model
as it is and as it is when they attack, every event has P'(E) <= 1 - f(P(E)); f is convex, so every expected score
in [0, 1] (attack success, error rate) that is `clean` when they are honest is, whatever they do, at most

    1 - f(clean) = min over alpha of e^alpha clean + delta(alpha).

Each of k clients moves a round's mean by at most twice its clip, against itself where it is honest. Where
everybody takes part the releases are Gaussian and the ceiling is Phi(Phi^-1(clean) + mu), with mu^2 the sum over
rounds of (2 k clip / noise)^2 (Dong, Roth, Su, JRSS-B 2022). Clients drawn by coins of their own are mixtures of
Gaussians with a binomial number of them, composed by dp-accounting's PLD. Any other way of drawing is credited
with nothing. The statement is about the expectation over trainings.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from fedaudit.attacks import stats
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.robustness import Certificate

ALPHAS = np.arange(0.0, 30.05, 0.1)
STEP = 1e-3  # of the discretised privacy loss; rounded up, so that the ceiling is never too low


def certify(
    before: Sequence[float],
    after: Sequence[float],
    trials: int,
    releases: Sequence[Release],
    malicious: int,
    **words: Any,
) -> Certificate:
    """A score of several seeds, clean and attacked, beside its ceiling; `words` are the other fields.

    `trials` is how many test images a score is the share of: none of them in any seed is no probability of 0.
    """
    clean, attacked = bound_score(before, trials), _compute_interval(after)
    return Certificate(
        malicious=malicious,
        seeds=len(after),
        clean=float(np.mean(before)),
        measured=float(np.mean(after)),
        interval=attacked,
        ceiling=compute_ceiling(clean, releases, malicious),
        **words,
    )


def bound_score(values: Sequence[float], trials: int) -> float:
    """The upper end of a score's expectation: Student's over seeds, and at least the exact one over images."""
    over_seeds, total = _compute_interval(values), trials * len(values)
    exact = stats.clopper_pearson(float(np.sum(values)) * trials, total)[1]
    return max(exact, over_seeds[1] if over_seeds else 0.0)


def _compute_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    low, high = stats.t_interval(values)
    return max(0.0, low), min(1.0, high)


def explain_missing(protections: Sequence[Protection], releases: Sequence[Release], rounds: int) -> str:
    """Why there is no certificate, as a phrase; empty where there is one."""
    central = [p for p in protections if p.central]
    if not central:
        return "no noise of the server bounds what a client changes"
    if any(p.hides_single_uploads() for p in protections):
        return "the server reads sums alone, so it cannot clip what a malicious client sends"
    lines = select_noisy_releases(releases)
    if len({r.round for r in lines}) < rounds:
        return f"the ledger has a noised model for {len({r.round for r in lines})} of {rounds} rounds"
    if any(r.derived != "clip" or not r.clip_norm for r in lines):
        return "a release is noised without a clip that the server enforces"
    return ""


def select_noisy_releases(releases: Sequence[Release]) -> list[Release]:
    """Releases of the model with the server's noise."""
    return [r for r in releases if r.kind == Kind.GLOBAL_MODEL and r.noise_std > 0]


def compute_ceiling(clean: float, releases: Sequence[Release], k: int) -> float:
    """The highest expected score that k malicious clients can reach where it is `clean` with them honest."""
    if not 0 <= clean <= 1:
        raise ValueError(f"a score lies between 0 and 1, not {clean}")
    ratios = [(2 * (r.clip_norm or math.inf) / r.noise_std, r) for r in select_noisy_releases(releases)]
    if all(r.sampling == "poisson" and not r.coin for _, r in ratios) and ratios:
        return minimise(clean, compose(Counter((ratio, r.sample_rate) for ratio, r in ratios), k))
    return shift_gaussian(clean, k * math.sqrt(sum(ratio**2 for ratio, _ in ratios)))


def shift_gaussian(clean: float, mu: float) -> float:
    """Phi(Phi^-1(clean) + mu); 0 and 1 stay where they are only where nothing can change."""
    if mu == math.inf or clean == 1:
        return 1.0
    return float(scipy.stats.norm.cdf(scipy.stats.norm.ppf(clean) + mu)) if clean else 0.0


def compose(rounds: Counter[tuple[float, float]], k: int) -> list[float]:
    """delta at each of ALPHAS, of rounds counted by (sensitivity over noise of one client, rate)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = pld.identity(value_discretization_interval=STEP)
    for (ratio, rate), times in rounds.items():
        chances = scipy.stats.binom.pmf(np.arange(k + 1), k, rate).tolist()
        once = pld.from_mixture_gaussian_mechanism(
            1 / ratio, [float(i) for i in range(k + 1)], chances, value_discretization_interval=STEP
        )
        total = total.compose(once.self_compose(times))
    return [float(d) for d in np.asarray(total.get_delta_for_epsilon(ALPHAS.tolist()))]


def minimise(clean: float, deltas: Sequence[float]) -> float:
    """The least of e^alpha clean + delta over ALPHAS."""
    return min(1.0, *(math.exp(a) * clean + d for a, d in zip(ALPHAS, deltas, strict=True)))
