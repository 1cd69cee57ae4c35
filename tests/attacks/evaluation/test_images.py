"""SSIM, PSNR and MSE of a stack are those of scikit-image, image by image."""

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from fedaudit.attacks.evaluation import images


def pair(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.random(shape).astype(np.float32)
    return a, np.clip(a + 0.2 * rng.normal(size=shape), 0, 1).astype(np.float32)


def test_no_examples_have_rows_as_well() -> None:
    assert images.to_rows(np.zeros((0, 1, 8, 8))).shape == (0, 64)
    assert images.to_rows(np.arange(6).reshape(2, 3, 1)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("shape", "side"),
    [((3, 1, 28, 28), 7), ((2, 3, 32, 32), 7), ((2, 1, 25, 25), 7), ((2, 1, 8, 8), 7), ((2, 1, 6, 9), 5)],
)
def test_ssim_is_that_of_scikit_image(shape: tuple[int, ...], side: int) -> None:
    a, b = pair(shape)
    expected = [
        structural_similarity(x.astype(float), y.astype(float), data_range=1, win_size=side, channel_axis=0)
        for x, y in zip(a, b, strict=True)
    ]
    assert images.window(*shape[-2:]) == side
    assert images.ssim(a, b) == pytest.approx(expected)


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
