"""Prototypes before and after poisoning: the plane, what cells record for it, and the figure."""

import re

import numpy as np
import pytest

from fedaudit.audit.robustness.figures import plot_moved_prototypes
from fedaudit.audit.robustness.finished_runs import project_points
from fedaudit.reports.charts import svg
from fedaudit.reports.robustness import MovedPrototypes, Robustness


def test_points_of_a_plane_keep_their_distances() -> None:
    before, after = np.array([[3.0, 0, 0, 0], [0, 4, 0, 0]]), np.array([[3.0, 0, 0, 0], [0, -4, 0, 0]])
    old, new, kept = project_points(before, after)
    assert kept == pytest.approx(1) and old[0] == pytest.approx(new[0])
    assert np.linalg.norm(old[1] - new[1]) == pytest.approx(8)
    assert np.linalg.norm(old[0] - old[1]) == pytest.approx(5)


def test_one_class_of_one_number_and_prototypes_that_are_all_alike_have_a_plane() -> None:
    old, new, kept = project_points(np.array([[1.0]]), np.array([[3.0]]))
    assert abs(old[0, 0] - new[0, 0]) == pytest.approx(2) and kept == 1 and old[0, 1] == 0
    assert project_points(np.ones((2, 3)), np.ones((2, 3)))[2] == 1


def test_every_class_is_an_arrow_from_a_ring_to_a_square_with_its_name() -> None:
    moved = MovedPrototypes(
        title="poisoned", classes=["cat", "dog"], before=[(0, 0), (1, 1)], after=[(0, 1), (9, 9)], kept=0.5
    )
    [figure] = plot_moved_prototypes(Robustness(clients=2, chance=0.5, seeds=[7], prototypes=[moved]))
    assert "2 arrows, the longest that of dog" in figure.alt and "50 % of the variance" in figure.caption
    drawn = svg(figure).decode()
    assert set(re.findall(r'id="(value-\d-\d)"', drawn)) == {"value-0-0", "value-0-1", "value-1-0", "value-1-1"}
    assert drawn == svg(figure).decode()
