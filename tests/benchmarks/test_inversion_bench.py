"""The comparison with the authors' programs: what they are given, and the word where they are not there."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.peers import gradient_inversion as inversion_bench
from fedaudit.attacks.evaluation.gradients import Imitation, updates
from fedaudit.attacks.updates.analytic import layer_input, read_layer
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.updates.test_update_inversion import world


class Written:
    """A reconstructor by their names, which says what it was given and claims grey images."""

    given: list[object] = []

    def __init__(
        self, model: torch.nn.Module, scale: object, settings: dict[str, object], num_images: int
    ) -> None:
        self.given.append(settings | {"free": all(p.requires_grad for p in model.parameters())})
        self.images = num_images

    def reconstruct(
        self, sent: list[torch.Tensor], labels: torch.Tensor, img_shape: tuple[int, ...]
    ) -> tuple[torch.Tensor, None]:
        return torch.full((self.images, *img_shape), 0.5), None


def test_their_program_gets_our_labels_its_own_settings_and_a_model_that_it_can_differentiate() -> None:
    w = world()
    attack = inversion_bench.Theirs(
        InvertingGradients.Config(iterations=9, restarts=2, smoothness=0.1),
        SimpleNamespace(GradientReconstructor=Written),
    )
    update = next(u for u in updates(w.artifacts, w.knowledge) if u.examples == 1)
    images, labels = attack.invert(update, 1, w.knowledge, np.random.default_rng(0))
    ours = InvertingGradients(InvertingGradients.Config(iterations=1, restarts=1))
    assert labels.tolist() == ours.invert(update, 1, w.knowledge, np.random.default_rng(0))[1].tolist()
    assert images.shape == (1, *w.knowledge.shape) and (images == 0.5).all()
    [given] = Written.given
    assert given == inversion_bench.PAPER | {"restarts": 2, "max_iterations": 9, "free": True}  # type: ignore[operator]


def test_the_gradient_of_the_first_layer_is_what_ours_divides() -> None:
    w = world()
    update = next(u for u in updates(w.artifacts, w.knowledge) if u.examples == 1)
    copy = Imitation(update, w.knowledge)
    found, entered = read_layer(copy, w.knowledge.shape), layer_input(copy, w.knowledge.shape)
    assert found is not None and entered is not None
    weight, bias = found.gradient
    row = np.abs(bias).argmax()
    np.testing.assert_allclose(weight[row] / bias[row], entered, rtol=1e-3, atol=1e-4 * np.abs(entered).max())


def test_where_there_is_no_program_it_says_what_to_do() -> None:
    with pytest.raises(UserError, match="nothing to compare with") as error:
        inversion_bench.rivals(1)
    assert "clone" in str(error.value.hint)
