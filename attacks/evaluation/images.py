"""Agreement of images: MSE, PSNR and SSIM of stacks [k, C, H, W] in [0, 1], one number an image.

SSIM: Wang, Bovik, Sheikh, Simoncelli. IEEE Trans. Image Processing 2004. As scikit-image computes
it (uniform window, sample covariance, data_range 1, mean over channels), for a whole stack at once;
a test holds the two equal. A Gaussian window gives other numbers. None of the three says whose
image it is: the class mean alone reaches an SSIM of 0.4 on Fashion-MNIST.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

Floats = NDArray[np.floating[Any]]


def mse(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Mean squared error; [k, C, H, W] twice -> [k]."""
    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    return np.asarray((gap**2).reshape(len(gap), -1).mean(axis=1))


def psnr(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio in dB; at most 100, so that an exact copy has a mean."""
    decibel: NDArray[np.float64] = -10 * np.log10(np.maximum(mse(a, b), 1e-10))
    return decibel


def window(height: int, width: int) -> int:
    """Side of the SSIM window: 7, or the largest odd number that fits a smaller image."""
    side = min(height, width, 7)
    return side if side % 2 else side - 1


def ssim(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Structural similarity; [k, C, H, W] twice -> [k]. 1 for a copy, about 0 for unrelated."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    side = window(*x.shape[-2:])
    area = side * side

    def blur(z: NDArray[np.float64]) -> NDArray[np.float64]:
        smooth: NDArray[np.float64] = uniform_filter(z, size=(1, 1, side, side))
        return smooth

    mean_x, mean_y = blur(x), blur(y)
    sample = area / max(1, area - 1)
    var_x, var_y = sample * (blur(x * x) - mean_x**2), sample * (blur(y * y) - mean_y**2)
    cov = sample * (blur(x * y) - mean_x * mean_y)
    c1, c2 = 0.01**2, 0.03**2
    index = ((2 * mean_x * mean_y + c1) * (2 * cov + c2)) / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    edge = (side - 1) // 2  # windows that reach over the border are left out
    inner = index[..., edge : x.shape[-2] - edge, edge : x.shape[-1] - edge]
    return np.asarray(inner.reshape(len(x), -1).mean(axis=1))
