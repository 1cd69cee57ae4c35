"""How a prototype depends on what its client would send of single images (attacks/evaluation/prototype_plays.py).

Numbers alone: plays give pairs of m, the mean of phi over a class's images, and the message p, and

    p = E[p] + B (m - E[m]) + e,        e ~ N(0, R),

is fitted to them: B by ridge regression towards a multiple of the identity, R from out-of-fold residuals. The
likelihood ratio is that of Sankararaman et al., Nature Genetics 2009, on messages in place of features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.covariance import shrink_covariance
from fedaudit.attacks.evaluation.prototype_matching import Match
from fedaudit.attacks.evaluation.sources import Prototype
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED

Floats = NDArray[np.floating[Any]]

ASSUMED = 20  # images behind a prototype where nothing visible tells it
PRECISION = 1e-3  # of the deviation of a class's phi, by which every message is blurred
# of the mean variance of a number; the best out of fold is taken
PENALTIES = (1e-6, 1e-4, 1e-2, 0.1, 1.0, 10.0, 1e3)
FOLDS = 5
NEAR = 1.25  # a factor nearer to 1 is what a client's own images make, and no secret
FAR = 4.0  # variances by which a common shift exceeds what a client's own images explain


@dataclass(frozen=True, kw_only=True)
class Law:
    """How a prototype depends on phi of the images behind it: N(expected + slope (m - E[m]), residual)."""

    message: Floats  # [D], as it was sent
    expected: Floats  # [D], of other images of the class, as many
    slope: Floats  # [D, D]
    residual: Floats  # [D, D]
    n: int

    def compare(self, phi: Floats, mean: Floats, covariance: Floats) -> Floats:
        """[m] log-likelihood ratios of the message with and without each candidate, phi [m, D].

        mean [D], covariance [D, D]: of phi over the class.
        """
        n, own = self.n, self.slope @ covariance @ self.slope.T
        residual = _blur(self.residual, own)
        seen = self.message - self.expected
        left = seen - (phi - mean) @ self.slope.T / n
        out, inside = own / n + residual, own * (n - 1) / n**2 + residual
        return np.asarray(0.5 * (_weigh(seen[None], out) - _weigh(left, inside)))


def _blur(residual: Floats, own: Floats) -> Floats:
    """The residual, and as much as a message is blurred by; `own`: the covariance of messages of one image."""
    return np.asarray(residual + (PRECISION**2 * np.trace(own) / len(own) + 1e-24) * np.eye(len(own)))


def _weigh(rows: Floats, covariance: Floats) -> Floats:
    """[m] squared Mahalanobis lengths of rows [m, D] plus the log determinant."""
    import scipy

    root = scipy.linalg.cholesky(covariance, lower=True)
    white = scipy.linalg.solve_triangular(root, rows.T, lower=True)
    return np.asarray((white**2).sum(0) + 2 * np.log(np.diag(root)).sum())


def is_chosen(p: Prototype) -> bool:
    """Whether the auditor chose how many images stand behind it: one of each of the other classes then."""
    return p.origin in (REPLAYED, UNPROTECTED)


@dataclass(frozen=True)
class CountLawFit:
    """Plays of the counts behind a group of prototypes, and how they depend on phi."""

    expected: Mapping[int, Floats]  # class -> [D]
    again: Mapping[int, Floats]  # class -> one play more
    scale: Mapping[int, float]  # class -> length of a message by that of m
    slope: Floats
    residual: Floats
    spread: Floats  # [D], variance of a message over scale

    @classmethod
    def regress(cls, m: Floats, p: Floats, label: NDArray[np.int64], visit: NDArray[np.int64]) -> "CountLawFit":
        x, y, expected, again, scale = m.copy(), p.copy(), {}, {}, {}
        for c in np.unique(label).tolist():
            own = label == c
            scale[c] = float(np.sqrt((p[own] ** 2).sum() / max((m[own] ** 2).sum(), 1e-24))) or 1.0
            expected[c], again[c] = p[own].mean(0), p[own][-1]
            count = max(int(own.sum()), 2)
            freed = np.sqrt(count / (count - 1))  # a mean over the same plays takes a part away
            x[own] = (m[own] - m[own].mean(0)) * freed
            y[own] = (p[own] - expected[c]) / scale[c] * freed
        slope, left = _regress_to_identity(x, y, visit % FOLDS)
        residual = shrink_covariance(left, has_mean_zero=True)
        return cls(expected, again, scale, slope, residual, y.var(0))

    def match(self, chosen: Sequence[Prototype]) -> Match:
        return Match(*self._scale(chosen), self._variance)

    def match_again(self, labels: Sequence[int]) -> Match:
        again, expected = (
            np.stack([of[c] / self.scale[c] for c in labels]) for of in (self.again, self.expected)
        )
        return Match(again, expected, self._variance)

    def describe(self, chosen: Sequence[Prototype]) -> list[Law]:
        """Laws of prototypes, which are put on the scale of the plays first, where they are not on it."""
        sent, expected = self._scale(chosen)
        sent = _calibrate(sent, expected, self._variance, not is_chosen(chosen[0]))
        return [
            Law(message=s, expected=e, slope=self.slope, residual=self.residual, n=p.samples or ASSUMED)
            for s, e, p in zip(sent, expected, chosen, strict=True)
        ]

    def invert(self, law: Law, mean: Floats, covariance: Floats) -> Floats:
        """[D] phi of the image that the message may be of, were it that of one image, which it may resemble most.

        The posterior mean of phi, put as far from the mean of its class as images of the class lie: noise draws
        it to that mean, and what resembles the mean most names nobody. These are plays of single images: what
        other images add is no noise here, and what protections add is.
        """
        own, shared = self.slope @ covariance @ self.slope.T, self.slope @ covariance
        gain = np.linalg.solve(own + _blur(self.residual, own), shared)
        explained = float((gain * shared).sum())  # variance of the posterior mean, of all numbers
        spread = np.sqrt(np.trace(covariance) / explained) if explained > 0 else 0.0
        return np.asarray(mean + spread * (law.message - law.expected) @ gain)

    @property
    def _variance(self) -> Floats:
        return np.asarray(self.spread + 0.05 * self.spread.mean() + 1e-24)

    def _scale(self, chosen: Sequence[Prototype]) -> tuple[Floats, Floats]:
        """[k, D] prototypes and what plays give, both at the length of m."""
        common = np.mean(list(self.expected.values()), axis=0)
        scale = np.array([self.scale.get(p.label, 1.0) for p in chosen])[:, None]
        expected = np.stack([self.expected.get(p.label, common) for p in chosen]) / scale
        return np.stack([p.feature.astype(np.float64) for p in chosen]) / scale, expected


def _calibrate(sent: Floats, expected: Floats, variance: Floats, is_one_visit: bool) -> Floats:
    """Messages [k, D] without the factor and the shift of their sender, where there are such.

    A client's own messages have both in common. Those of different visits have a factor each, if any.
    """
    weight = (expected**2 / variance).sum(1, keepdims=True)
    along = (sent * expected / variance).sum(1, keepdims=True)
    if is_one_visit:
        weight, along = (np.broadcast_to(a.sum(), a.shape) for a in (weight, along))
    factor = along / np.maximum(weight, 1e-24)
    factor = np.where(np.abs(factor) > 1e-6, factor, 1.0)
    shift = (sent - expected).mean(0)
    plain, scaled, shifted = (
        float(((left**2) / variance).mean())
        for left in (sent - expected, sent - factor * expected, sent - expected - shift)
    )
    is_far = (np.abs(np.log(np.abs(factor))) > np.log(NEAR)) & (
        np.abs(factor - 1) > FAR / np.sqrt(weight + 1e-24)
    )
    has_shift = is_one_visit and len(sent) > 3 and len(sent) * (shift**2 / variance).mean() > FAR
    if has_shift and shifted < plain / 2 and not (is_far.any() and scaled < 2 * shifted):
        return np.asarray(sent - shift)
    if is_far.any() and scaled < plain / 2:
        return np.asarray(np.where(is_far | (factor < 0), sent / factor, sent))
    return sent


def _regress_to_identity(x: Floats, y: Floats, fold: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Slope [D, D] of y = slope x by ridge regression towards b I, and residuals [k, D] out of fold."""
    best, least = None, np.inf
    for penalty in PENALTIES:
        left = np.empty_like(y)
        for f in range(FOLDS):
            own = fold == f
            if own.any():
                left[own] = y[own] - x[own] @ _fit_slope(x[~own], y[~own], penalty)
        if (left**2).sum() < least:
            best, least = (penalty, left), float((left**2).sum())
    assert best is not None, "one of the penalties fits best"
    return _fit_slope(x, y, best[0]).T, best[1]


def _fit_slope(x: Floats, y: Floats, penalty: float) -> Floats:
    b = (x * y).sum() / max((x**2).sum(), 1e-24)
    gram = x.T @ x
    ridge = penalty * np.trace(gram) / len(gram) + 1e-24
    return np.asarray(
        b * np.eye(len(gram)) + np.linalg.solve(gram + ridge * np.eye(len(gram)), x.T @ (y - b * x))
    )
