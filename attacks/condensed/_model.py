"""What condensation does to a picture, learned from a few that the adversary condensed itself.

Condensing one picture takes half a second and a decoder wants thousands of pairs. Both pictures standardised,

    s = g(f) x + noise of power P(f),

ring by ring of spatial frequency f: gain and power are read off a few condensed auxiliary pictures, and all
other auxiliary pictures are blurred and noised alike. On Fashion-MNIST 64 pictures gave what 300 did.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.condensed._images import standardised

Floats = NDArray[np.floating[Any]]


class CondensationModel:
    """From pictures and the condensed images of each alone, both [k, C, H, W]."""

    def __init__(self, pictures: Floats, condensed: Floats, seed: int) -> None:
        x, s = standardised(pictures), standardised(condensed)
        self._seed = seed
        self.gain = share(s, x)
        left = np.abs(np.fft.fft2(s - filtered(x, self.gain))) ** 2
        ring = _rings(left)
        power = np.bincount(ring.ravel(), left.mean(axis=(0, 1)).ravel()) / np.bincount(ring.ravel())
        self.noise = np.sqrt(power / ring.size)  # amplitude, ring by ring

    def features(self, pictures: Floats) -> Floats:
        """As an extractor's: [k, C, H, W] -> [k, C H W], the same whenever the pictures are."""
        return self.imitated(pictures, np.random.default_rng(self._seed)).reshape(len(pictures), -1)

    def imitated(self, pictures: Floats, rng: np.random.Generator) -> Floats:
        """Condensed images as they might be of each picture alone, standardised, [k, C, H, W]."""
        noise = filtered(rng.standard_normal(pictures.shape), self.noise)
        blurred = filtered(standardised(pictures), self.gain)
        return np.asarray(standardised(blurred + noise), np.float32)


def filtered(pictures: Floats, gain: Floats) -> NDArray[np.float64]:
    """Pictures [k, C, H, W] with each ring of spatial frequency times its gain [rings]."""
    return np.asarray(np.fft.ifft2(np.fft.fft2(pictures) * gain[_rings(pictures)]).real)


def share(of: Floats, among: Floats) -> NDArray[np.float64]:
    """The gain [rings] that brings `among` nearest to `of`, [k, C, H, W] both, by least squares."""
    a, b = np.fft.fft2(of), np.fft.fft2(among)
    ring = _rings(a).ravel()
    both = np.bincount(ring, (a * b.conj()).real.sum(axis=(0, 1)).ravel())
    own = np.bincount(ring, (np.abs(b) ** 2).sum(axis=(0, 1)).ravel())
    return np.asarray(both / np.maximum(own, 1e-12))


def _rings(pictures: NDArray[Any]) -> NDArray[np.int64]:
    """Spatial frequency of each entry of the transform, in whole cycles a side, [H, W]."""
    height, width = pictures.shape[-2:]
    far = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    return np.asarray((far * max(height, width)).round(), np.int64)
