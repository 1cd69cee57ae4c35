"""What attacks assert of single clients, in words, where nobody can verify it."""

import numpy as np

from fedaudit.attacks.timing.speed_profile import SpeedProfile
from fedaudit.attacks.updates.label_counts_from_gradient import LabelCountsFromGradient

CLASSES = ["cat", "dog", "owl"]


def test_speeds_and_sizes_are_asserted_as_far_as_they_are_claimed() -> None:
    claim = {
        "client": np.array([0, 1]),
        "speed": np.array([0.5, 2.0]),
        "device": np.array([-1, 1]),
        "size": np.array([np.nan, 40.2]),
        "tiers": np.array([0.5, 2.0]),
    }
    said = SpeedProfile().assertions(claim, CLASSES)
    assert [a.says for a in said] == [
        "number 2 of 2 in speed",
        "a device of published speed 2, about 40 examples",
    ]


def test_counts_are_asserted_of_recorded_batches_and_never_of_planted_ones() -> None:
    claim = {
        "client": np.array([3, 3]),
        "kind": np.array(["local_model", "local_model"]),
        "origin": np.array(["recorded", "replayed"]),
        "counts": np.array([[[2, 0, 1], [0, 0, 0]], [[9, 9, 9], [9, 9, 9]]]),
    }
    (one,) = LabelCountsFromGradient().assertions(claim, CLASSES)
    assert (one.client, one.says) == (3, "2 of cat, 1 of owl")
