"""Whether any member is first: known answers, chance by simulation, and one image's own message among many."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.ranking import First, compare_best


def test_the_best_of_the_members_is_first_or_not() -> None:
    assert compare_best(np.array([0.0, 9.0]), np.array([1.0, 2.0])) == First(1.0, 0.5)
    assert compare_best(np.array([0.0, 1.0]), np.array([9.0, 2.0])) == First(0.0, 0.5)


def test_ties_are_shared_out_and_only_as_many_non_members_take_part() -> None:
    assert compare_best(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == First(0.5, 0.5)
    assert compare_best(np.array([1.0]), np.array([0.0, 5.0])) == First(1.0, 0.5)
    assert compare_best(np.array([1.0, 2.0, 0.0]), np.array([0.0])) == First(1.0, 0.75)


@pytest.mark.parametrize(("n", "m"), [(1, 9), (5, 5), (30, 10)])
def test_who_knows_nothing_is_at_the_stated_chance(n: int, m: int) -> None:
    rng = np.random.default_rng(0)
    found = [compare_best(rng.normal(size=n), rng.normal(size=m)) for _ in range(4000)]
    assert np.mean([f.hit for f in found]) == pytest.approx(found[0].chance, abs=0.025)
