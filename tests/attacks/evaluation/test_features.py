"""A model is shown each image once, however many sets hold it, and every set gets its own features."""

import numpy as np

from fedaudit.attacks.evaluation.features import MOST, extract_each


class Counting:
    """Features that are the sum of an image and its first pixel."""

    def __init__(self) -> None:
        self.shown: list[int] = []

    def features(self, images: np.ndarray) -> np.ndarray:
        self.shown.append(len(images))
        return np.stack([images.sum(axis=(1, 2, 3)), images[:, 0, 0, 0]], axis=1)


def test_every_set_gets_the_features_of_its_own_images() -> None:
    rng = np.random.default_rng(0)
    pool = rng.random((40, 1, 3, 3)).astype(np.float32)
    sets = [pool[rng.integers(0, 40, n)] for n in (3, 1, 7, 20)]
    sets = [*sets, pool, sets[0], pool[:0]]
    model = Counting()
    for some, found in zip(sets, extract_each(model, sets), strict=True):
        np.testing.assert_array_equal(found, Counting().features(some))
    assert model.shown == [40]


def test_no_more_images_are_held_at_a_time_than_that() -> None:
    rng = np.random.default_rng(1)
    sets = [rng.random((MOST // 4, 1, 1, 1)) for _ in range(10)]
    sets.insert(4, rng.random((2 * MOST, 1, 1, 1)))  # but for a set that holds more
    model = Counting()
    for some, found in zip(sets, extract_each(model, sets), strict=True):
        np.testing.assert_array_equal(found, Counting().features(some))
    assert model.shown == [MOST, 2 * MOST, MOST, MOST // 2]
