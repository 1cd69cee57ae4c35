"""Of a degenerate world nothing false is said, and whatever was not looked at is open."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedaudit as fa
from tests.worlds.degenerate import DEGENERATE, digits
from tests.worlds.drawn import DRAWN
from tests.worlds.ordinary_networks import factory
from tests.worlds.world import cases, check_world


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", cases(DEGENERATE))
def test_of_a_degenerate_world_nothing_false_is_said(name: str, tmp_path: Path, record_property: Any) -> None:
    check_world(DEGENERATE[name], tmp_path, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases(DRAWN))
def test_of_a_world_that_was_drawn_nothing_false_is_said(name: str, tmp_path: Path, record_property: Any) -> None:
    check_world(DRAWN[name], tmp_path, record_property)


def score(change: Any) -> Any:
    """An attack on a network whose weights were all changed."""
    net = factory()
    with torch.no_grad():
        for weights in net.parameters():
            change(weights)
    (x, y) = digits()
    given = {"members": (x[:60], y[:60]), "nonmembers": (x[60:160], y[60:160])}
    return lambda: fa.attack("loss_threshold", model=net, **given)


def test_scores_that_are_all_equal_tell_nobody_apart() -> None:
    rows = score(lambda weights: weights.zero_())().evidence.to_dicts()
    assert {r["value"] for r in rows if r["measure"] == "auc"} == {0.5}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_whose_weights_are_not_finite_is_refused_in_a_sentence(value: float) -> None:
    with pytest.raises(fa.UserError, match=r"finite|NaN") as refused:
        score(lambda weights: weights.fill_(value))()
    assert refused.value.hint
