"""A whitened likelihood ratio: how much more likely a message is with a person in it than without.

Let psi(x) be what a client that holds x alone sends, mu_c its mean over a class and C its covariance within
classes. A message of n people is about w mu + (psi(x) - mu_c) |w| / n with x in it, where w is the mixture
of classes. Around it others spread with covariance |w|^2 C / n, so that but for a constant and a factor the log
ratio is

    <d, C^-1 (z - w mu)> / |w| - <d, C^-1 d> / 2n,        d = psi(x) - mu_c

(Sankararaman et al., Nature Genetics 2009, with the covariance of correlated numbers). C is that of auxiliary
people plus a ridge, worked out from their products, so that no D by D matrix is made.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Labels = NDArray[np.int64]
ALONE = 1.05  # people who are as good as one: the ratio of one has no end
FEWEST = 20.0  # people behind a message, where their number is not told
RIDGE = 0.3  # of the mean variance along auxiliary people; .03 to .3 differ by .01 in AUC


@dataclass(frozen=True)
class Whitened:
    """Auxiliary people as they are played."""

    classes: Labels  # [c], those of auxiliary people
    means: Values  # [c, D]
    apart: Values  # [a, D] psi less the mean of the class
    inner: Values  # [a, a] (ridge I + apart apart' / a)^-1
    ridge: float

    @classmethod
    def from_plays(cls, psi: Values, labels: Labels) -> "Whitened":
        """psi [a, D] of people of these classes [a]."""
        classes, place = np.unique(labels, return_inverse=True)
        means = np.stack([psi[labels == c].mean(axis=0) for c in classes])
        apart = psi - means[place]
        many = len(psi)
        gram = apart @ apart.T / many
        ridge = max(RIDGE * float(np.trace(gram)) / many, 1e-30)
        return cls(classes, means, apart, np.linalg.inv(ridge * np.eye(many) + gram), ridge)

    def find_mixture(self, message: Values) -> Values:
        """[c] how much of each class's mean is in a message [D]; none of it is negative."""
        from scipy.optimize import nnls

        length = float(np.linalg.norm(message))
        if length == 0:
            return np.zeros(len(self.classes))
        return np.asarray(nnls(self.means.T, message / length)[0] * length)

    def score(self, message: Values, mixture: Values, examples: float, psi: Values, labels: Labels) -> Values:
        """[m] of people with psi [m, D], in a message [D] with this mixture [c] of so many people.

        Where their number is not told (0), it is as many as leave messages as far from the mixture as this one.
        """
        size = float(mixture.sum())
        if size <= 0:
            return np.zeros(len(psi))
        apart = psi - self._find_means(labels)
        left = (message - mixture @ self.means) / size
        n = examples or max(FEWEST, self.width / max(float(self._measure(left[None])[0]), 1e-12))
        return np.asarray(apart @ self._weigh(left) - self._measure(apart) / (2 * n))

    def score_mean(self, message: Values, mean: Values, examples: float, psi: Values) -> Values:
        """[m] log ratios of N(d / n, C (n - 1) / n^2) to N(0, C / n), of people with psi [m, D].

        The message [D] less the mean [D] of its class is the mean of n people. Where it lies further away than
        such a mean does, something else moved it: ratios shrink by as much.
        """
        n, apart, left = max(examples, ALONE), psi - mean, message - mean
        size, others = float(self._measure(left[None])[0]), self._measure(left - apart / n)
        ratio = (n * size - n**2 / (n - 1) * others + self.width * np.log(n / (n - 1))) / 2
        return np.asarray(ratio / max(1.0, n * size / self.width))

    @cached_property
    def width(self) -> float:
        """<d, C^-1 d> of auxiliary people on average: about how many numbers differ by themselves."""
        return max(float(self._measure(self.apart).mean()), 1e-9)

    def _find_means(self, labels: Labels) -> Values:
        """[m, D]; of a class without auxiliary people that of all others."""
        place = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        known = (self.classes[place] == labels)[:, None]
        return np.asarray(np.where(known, self.means[place], self.means.mean(axis=0)))

    def _weigh(self, vector: Values) -> Values:
        """C^-1 times a vector [D]."""
        along = self.inner @ (self.apart @ vector) / len(self.apart)
        return np.asarray((vector - self.apart.T @ along) / self.ridge)

    def _measure(self, rows: Values) -> Values:
        """[m] <r, C^-1 r> of rows [m, D]."""
        along = rows @ self.apart.T  # [m, a]
        within = np.einsum("ma,ab,mb->m", along, self.inner, along) / len(self.apart)
        return np.asarray((np.einsum("md,md->m", rows, rows) - within) / self.ridge)
