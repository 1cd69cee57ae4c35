"""What condensation does to an image, learned from a few that the adversary condensed itself.

Condensing one image takes half a second and a decoder wants thousands of pairs. Both images standardised,

    s = g(f) x + noise of power P(f),

ring by ring of spatial frequency f: gain and power are read off a few condensed auxiliary images, and all
other auxiliary images are blurred and noised alike. On Fashion-MNIST 64 images gave what 300 did.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.condensed._images import standardise
from fedaudit.attacks.modality.images import to_rows

Floats = NDArray[np.floating[Any]]


class CondensationModel:
    """From images and the condensed images of each alone, both [k, C, H, W]."""

    def __init__(self, images: Floats, condensed: Floats, seed: int) -> None:
        x, s = standardise(images), standardise(condensed)
        self._seed = seed
        self.gain = share(s, x)
        left = np.abs(np.fft.fft2(s - filter_frequencies(x, self.gain))) ** 2
        ring = _rings(left)
        power = np.bincount(ring.ravel(), left.mean(axis=(0, 1)).ravel()) / np.bincount(ring.ravel())
        self.noise = np.sqrt(power / ring.size)  # amplitude, ring by ring

    def features(self, images: Floats) -> Floats:
        """As an extractor's: [k, C, H, W] -> [k, C H W], the same whenever the images are."""
        return to_rows(self.imitate(images, np.random.default_rng(self._seed)))

    def imitate(self, images: Floats, rng: np.random.Generator) -> Floats:
        """Condensed images as they might be of each image alone, standardised, [k, C, H, W]."""
        noise = filter_frequencies(rng.standard_normal(images.shape), self.noise)
        blurred = filter_frequencies(standardise(images), self.gain)
        return np.asarray(standardise(blurred + noise), np.float32)


def filter_frequencies(images: Floats, gain: Floats) -> NDArray[np.float64]:
    """Images [k, C, H, W] with each ring of spatial frequency times its gain [rings]."""
    return np.asarray(np.fft.ifft2(np.fft.fft2(images) * gain[_rings(images)]).real)


def share(of: Floats, among: Floats) -> NDArray[np.float64]:
    """The gain [rings] that brings `among` nearest to `of`, [k, C, H, W] both, by least squares."""
    a, b = np.fft.fft2(of), np.fft.fft2(among)
    ring = _rings(a).ravel()
    both = np.bincount(ring, (a * b.conj()).real.sum(axis=(0, 1)).ravel())
    own = np.bincount(ring, (np.abs(b) ** 2).sum(axis=(0, 1)).ravel())
    return np.asarray(both / np.maximum(own, 1e-12))


def _rings(images: NDArray[Any]) -> NDArray[np.int64]:
    """Spatial frequency of each entry of the transform, in whole cycles a side, [H, W]."""
    height, width = images.shape[-2:]
    far = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    return np.asarray((far * max(height, width)).round(), np.int64)
