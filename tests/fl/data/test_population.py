"""Who holds which examples: nothing twice, and nothing of the test part."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import populate
from fedaudit.fl.partitions.iid import IID
from fedaudit.fl.runtime.streams import Streams


def held(train: NDArray[np.generic], test: NDArray[np.generic]) -> list[int]:
    """Rows of the training part that the only client holds."""
    parts = [Arrays(x=x, y=np.zeros(len(x), np.int64)) for x in (train, test)]
    data = Data(train=parts[0], test=parts[1], classes=("a",))
    (part,) = populate(data, IID(), 1, Streams(0)).parts
    return sorted(part.tolist())


def test_of_equal_examples_the_first_stays_and_none_that_the_test_part_has() -> None:
    images = np.random.default_rng(0).random((8, 1, 4, 4), dtype=np.float32)
    images[5], images[7] = images[2], images[2]
    assert held(images, images[3:4].copy()) == [0, 1, 2, 4, 6]


def test_examples_of_the_same_pixels_in_another_order_are_different() -> None:
    image = np.random.default_rng(0).random((1, 1, 4, 4), dtype=np.float32)
    assert held(np.concatenate([image, image[..., ::-1], image]), image.transpose(0, 1, 3, 2)) == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_texts_of_few_words_are_compared_word_by_word(seed: int) -> None:
    rng = np.random.default_rng(seed)
    train, test = rng.integers(0, 3, (200, 4)), rng.integers(0, 3, (10, 4))
    seen, left = {tuple(row) for row in test.tolist()}, []
    for i, row in enumerate(map(tuple, train.tolist())):
        if row not in seen:
            left.append(i)
        seen.add(row)
    assert held(train, test) == left and 0 < len(left) < 100
