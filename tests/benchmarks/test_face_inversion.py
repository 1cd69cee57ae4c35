"""The picture of the README is what it says: a face from its gradient, and none from a noised one."""

import numpy as np
import pytest
import torch

import fedaudit as fa
from benchmarks import face_inversion as picture


@pytest.mark.nightly
def test_a_face_is_drawn_from_its_gradient_and_not_from_a_noised_one() -> None:
    from skimage.data import lfw_subset

    face = lfw_subset()[3:4].astype(np.float32)
    network = picture.make_network()
    gradient = picture.take_gradient(network, face)
    noised = picture.add_noise(gradient, torch.Generator().manual_seed(0))

    def error(sent: list[torch.Tensor]) -> float:
        drawn = fa.invert(network, sent, shape=face.shape, attack="dlg")
        return float(np.abs(drawn.images[0] - face).mean())

    assert error(gradient) < 0.01 < 0.2 < error(noised)
