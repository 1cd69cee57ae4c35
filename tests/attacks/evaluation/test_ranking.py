"""Ranks among galleries: the right order, ties shared fairly, copies removed, chance for noise."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.ranking import (
    First,
    Present,
    compare_by_class,
    find_present,
    rank_among,
    rank_images,
    rank_sets,
)
from fedaudit.attacks.modality.images import ImagePool, fingerprints


def images(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None, None, None]


def test_rank_counts_the_nearer_ones() -> None:
    found = rank_images(images(0.5, 0.5), images(0.6, 0.9), [images(0.0, 0.45, 1.0)] * 2)
    assert found.rank.tolist() == [2, 2]  # distances .1 and .4 against .5, .05, .5
    assert found.rank1.tolist() == [0, 0]
    assert found.rank5.tolist() == [1, 1]
    assert rank_images(images(0.5), images(0.52), [images(0.0, 1.0)]).rank1.tolist() == [1]


def test_ties_are_shared_as_by_a_coin() -> None:
    found = rank_images(images(0.0), images(0.5), [images(0.5, 0.5, 1.0)])
    assert found.rank.tolist() == [2]  # one of three places
    assert found.rank1.tolist() == pytest.approx([1 / 3])
    constant = rank_images(images(0.0), images(0.5), [images(*[0.5] * 9)])
    assert constant.rank5.tolist() == pytest.approx([0.5])  # of ten tied, five places


def test_noise_is_found_as_often_as_chance() -> None:
    rng = np.random.default_rng(0)
    claimed, true = rng.random((2, 2000, 1, 3, 3))
    galleries = rng.random((2000, 9, 1, 3, 3))
    found = rank_images(claimed, true, galleries)
    assert found.rank1.mean() == pytest.approx(0.1, abs=0.02)  # three standard errors
    assert found.rank.mean() == pytest.approx(5.5, abs=0.2)


def test_pool_holds_each_image_once_and_no_member() -> None:
    pool = ImagePool(images(0.1, 0.2, 0.1, 0.3))
    assert len(pool) == 3
    left = pool.without(fingerprints(images(0.2)))
    assert sorted(left.ravel().round(1).tolist()) == pytest.approx([0.1, 0.3])


def test_all_distances_are_ranked_alike_and_what_is_no_number_comes_last() -> None:
    others = np.array([[2.0, 1.0, 1.0], [3.0, 1.0, 4.0]])
    found = rank_among([1.0, 1.0, np.nan], others)
    assert found.rank.tolist() == [1, 2, 3]
    assert found.rank1.tolist() == pytest.approx([1, 1 / 3, 0])


def test_a_set_of_one_image_ranks_as_that_image_does() -> None:
    rng = np.random.default_rng(0)
    claimed, true, gallery = rng.random((1, 1, 5, 5)), rng.random((1, 1, 5, 5)), rng.random((9, 1, 1, 5, 5))
    one, other = rank_sets(claimed, true, gallery), rank_images(claimed, true, [gallery[:, 0]])
    assert one.rank.tolist() == other.rank.tolist()


def test_members_that_come_first_in_the_list_are_not_before_others_as_near() -> None:
    y = np.array([0, 0, 1])
    assert compare_by_class(np.zeros(3), np.zeros(3), y, y) == First(0.5, 0.5)
    # by chance as often as the class of the first one has members
    found = compare_by_class(np.array([0.0, 0.0, 9.0]), np.zeros(3), y, np.array([0, 1, 1]))
    assert found == First(1.0, 1 / 3)


def test_an_image_is_present_where_it_is_ten_times_nearer_than_any_of_the_other_side() -> None:
    assert find_present(0.05, 1.0) == Present(True, False)
    assert find_present(0.5, 1.0) == Present(False, False)
    assert find_present(1.0, 0.05) == Present(False, True)
    assert find_present(0.05, 1.0, most=0.01) == Present(False, False)
