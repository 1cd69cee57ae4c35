"""SSIM, PSNR and MSE of a stack are those of scikit-image, image by image."""

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio

from fedaudit.attacks.modality import images


def pair(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.random(shape).astype(np.float32)
    return a, np.clip(a + 0.2 * rng.normal(size=shape), 0, 1).astype(np.float32)


def test_no_examples_have_rows_as_well() -> None:
    assert images.to_rows(np.zeros((0, 1, 8, 8))).shape == (0, 64)
    assert images.to_rows(np.arange(6).reshape(2, 3, 1)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(3, 1, 7, 7), (2, 2, 5, 5), (2, 1, 3, 3, 3)])
def test_ssim_of_one_window_is_that_of_the_paper_for_images_and_volumes(shape: tuple[int, ...]) -> None:
    a, b = (v.reshape(*shape[:2], -1).astype(float) for v in pair(shape))
    (mean_a, mean_b), c1, c2 = (v.mean(axis=2) for v in (a, b)), 1e-4, 9e-4
    joint = ((a - mean_a[..., None]) * (b - mean_b[..., None])).sum(axis=2) / (a.shape[2] - 1)
    spread = a.var(axis=2, ddof=1) + b.var(axis=2, ddof=1)
    expected = (2 * mean_a * mean_b + c1) * (2 * joint + c2) / (mean_a**2 + mean_b**2 + c1) / (spread + c2)
    assert images.ssim(*pair(shape)) == pytest.approx(expected.mean(axis=1))


@pytest.mark.parametrize("shape", [(2, 1, 6, 9), (2, 1, 25, 25), (2, 1, 1, 4), (0, 1, 8, 8)])
def test_windows_fit_the_image(shape: tuple[int, ...]) -> None:
    a, b = pair(shape)
    assert images.ssim(a, b).shape == shape[:1]
    assert images.ssim(a, a) == pytest.approx([1] * shape[0])


def test_psnr_is_that_of_scikit_image() -> None:
    a, b = pair((4, 1, 9, 9))
    expected = [peak_signal_noise_ratio(x, y, data_range=1) for x, y in zip(a, b, strict=True)]
    assert images.psnr(a, b) == pytest.approx(expected, abs=1e-4)


def test_mse_averages_over_each_image() -> None:
    a, b = np.zeros((2, 1, 2, 2)), np.zeros((2, 1, 2, 2))
    b[1, 0, 0, 0] = 0.6
    assert images.mse(a, b) == pytest.approx([0, 0.09])
    assert images.psnr(a, b)[1] == pytest.approx(10.4576, abs=1e-4)


def test_a_copy_is_perfect_and_finite() -> None:
    a, _ = pair((1, 1, 8, 8))
    assert images.ssim(a, a) == pytest.approx([1])
    assert images.psnr(a, a) == pytest.approx([100])
