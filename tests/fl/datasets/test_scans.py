"""Invented scans: a lesion in each, brighter than what is around it, and a network that learns where it is."""

import numpy as np
import torch

from fedaudit.fl.data.dataset import Data, read_data
from fedaudit.fl.datasets.scans import CONTRAST, Scans
from fedaudit.fl.tasks.segment import measure_dice


def take(**config: object) -> Data:
    return read_data(Scans(Scans.Config(**config)))  # type: ignore[arg-type]


def test_a_scan_is_a_volume_with_a_class_for_each_place() -> None:
    data = take(scans=50)
    assert data.train.x.shape == (40, 1, 8, 8, 8) and data.test.y.shape == (10, 8, 8, 8)
    assert data.task.by_place and data.classes == ("background", "lesion") and data.width == 2
    sizes = data.train.y.reshape(40, -1).sum(1)
    assert sizes.min() > 0 and sizes.max() < 8**3 / 4  # a ball of radius 2.4 has at most 81 places


def test_a_lesion_is_brighter_by_its_contrast_and_the_same_numbers_come_again() -> None:
    data = take()
    inside, outside = (float(data.train.x[:, 0][data.train.y == c].mean()) for c in (1, 0))
    assert abs(inside - outside - CONTRAST) < 0.01
    assert np.array_equal(take().train.x, data.train.x)


def test_a_threshold_finds_most_places_of_a_lesion_and_a_shifted_mask_does_not() -> None:
    data = take()
    claimed = torch.from_numpy(data.test.x[:, 0] > 0.55).flatten(1)
    true = torch.from_numpy(data.test.y > 0)
    found = [measure_dice(claimed & t, claimed, t).mean() for t in (true.flatten(1), true.roll(3, 1).flatten(1))]
    assert found[0] > 0.5 > 3 * found[1]
