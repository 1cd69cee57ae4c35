"""How well images fit stretches of what many clients sent together: one client's copy is a small part of them.

In a mean over clients, an image that one of them wrote stands in what everybody's examples make of the same
numbers: about a mixture of their images, and other numbers of that client's. So images and stretches are compared
in the units of such mixtures, with the covariance of images within classes, the class means weighed by how many
people are mixed, and more or less noise besides. That is a matched filter (Turin, IRE Trans. Inf. Theory 6, 1960,
pp. 311-329), with the noise that honest clients make.

An image stands there if it fits better than chance and held-out images would let any candidate fit.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from fedaudit.attacks.attack import Examples, Floats
from fedaudit.attacks.evaluation.covariance import factor_covariance
from fedaudit.attacks.evaluation.readings import Values
from fedaudit.attacks.modality.images import to_rows
from fedaudit.attacks.summaries._stretches import CHUNK, EXACT, list_stretches

NOISE = (0.0, 0.01, 0.1, 1.0)  # besides the mixture, over the mean variance of a pixel
ALPHA = 0.001  # chance that anybody fits where nobody's image stands
LEAST = 0.7  # correlation from which on half of what is no mixture is the image
TAIL = 20  # highest held-out people, by whom the tail of all is told
MOST_PIXELS, MOST_WORK = 4096, 2e11  # of an image, and multiplications, that are affordable


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageMixtures:
    """Mixtures of many people's images, with some noise."""

    whitener: Values  # [d, d]
    dimensions: float  # in which whitened images differ, at most d

    def whiten(self, rows: Floats) -> Values:
        """[n, d] of length 1, of images or stretches."""
        found = to_rows(np.asarray(rows, np.float64)) @ self.whitener
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-30))

    def fit(self, numbers: Floats, images: Floats) -> Values:
        """How well each image [n, ...] fits the stretch that it fits best: 0 to 1, [n]."""
        rows, best = self.whiten(images).astype(np.float32), np.zeros(len(images))
        stretches = list_stretches(numbers, rows.shape[1])
        for begin in range(0, len(stretches), CHUNK):
            near = self.whiten(stretches[begin : begin + CHUNK]).astype(np.float32) @ rows.T
            best = np.maximum(best, np.maximum(near.max(axis=0), -near.min(axis=0)))
        return np.minimum(best, 1.0)

    def find_stretch(self, numbers: Floats, image: Floats) -> tuple[float, int]:
        """How well the image fits the stretch that it fits best, and where that begins."""
        row, stretches = self.whiten(image[None])[0], list_stretches(numbers, image.size)
        parts = range(0, len(stretches), CHUNK)
        fits = np.concatenate([np.abs(self.whiten(stretches[i : i + CHUNK]) @ row) for i in parts])
        best = int(np.argmax(fits))
        return float(fits[best]), best

    def find_least(self, held_out: Values, candidates: int, stretches: int) -> float:
        """From which fit on an image stands there: no more than ALPHA of such messages hold such a candidate.

        By chance, squares of correlations are of a beta distribution; what mixtures make besides is told from
        the fits of held-out people, the highest of which go on as an exponential tail.
        """
        if len(held_out) <= 2 * TAIL:
            return EXACT
        candidates, alpha = max(1, candidates), ALPHA / len(NOISE)
        share = alpha / (candidates * max(1, stretches))
        chance = scipy.special.betainccinv(0.5, max(self.dimensions - 1, 1.0) / 2, share) ** 0.5
        levels = np.sort(np.arctanh(np.minimum(held_out, 1 - 1e-9)))
        edge = levels[-TAIL - 1]
        beyond = float((levels[-TAIL:] - edge).mean())
        tail = np.tanh(edge + beyond * np.log(candidates * TAIL / (len(levels) * alpha)))
        return float(min(EXACT, max(LEAST, chance, tail)))


def build_mixtures(known: Examples, people: int, numbers: int) -> list[ImageMixtures]:
    """Of so many people's images like the known ones, one for each of NOISE, to read so many numbers with.

    None of too few known images, nor where they are so large that all stretches cannot be read.
    """
    rows = to_rows(known.x).astype(np.float64)
    size = rows.shape[1]
    if len(rows) < TAIL or size > MOST_PIXELS or numbers * size**2 > MOST_WORK:
        return []
    classes, of_class = np.unique(known.y, return_inverse=True)
    means = np.stack([rows[of_class == i].mean(axis=0) for i in range(len(classes))])
    factor, ridge = factor_covariance(rows - means[of_class])
    covariance = factor @ factor.T + ridge * np.eye(size)
    common = np.concatenate([means, np.ones((1, size))])  # an offset says nothing either
    each = list[ImageMixtures]()
    for noise in NOISE:
        every = covariance + noise * np.trace(covariance) / size * np.eye(size)
        values, vectors = np.linalg.eigh(every + people / len(common) * common.T @ common)
        whitener = vectors / np.sqrt(np.maximum(values, ridge))
        spread = np.linalg.eigvalsh(whitener.T @ covariance @ whitener)
        each.append(ImageMixtures(whitener=whitener, dimensions=float(spread.sum() ** 2 / (spread**2).sum())))
    return each
