"""Who is named: known answers, the figures of digits, chance, and that the mean of a group names nobody."""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.naming import NamingGallery, average_members, build_gallery, name_people
from fedaudit.attacks.evaluation.ranking import compare_by_class
from fedaudit.attacks.evaluation.trials import keep_pixels

DRAWS = 300


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)[:, None, None, None]


def example() -> NamingGallery:
    members = Examples(x=column(0, 10), y=np.zeros(2, np.int64))
    return build_gallery(members, column(4, 20), column(6), keep_pixels)


@cache
def read_digits() -> Bunch:
    return load_digits()


def digits(n: int, rng: np.random.Generator, least: int = 100) -> tuple[NamingGallery, Examples, np.ndarray]:
    """A gallery of a random class, its members and as many non-members as members."""
    every = read_digits()
    x = (every.images[:, None] / 16).astype(np.float64)
    own = rng.permutation(np.flatnonzero(every.target == rng.integers(10)))
    members, held_out = Examples(x=x[own[:n]], y=np.zeros(n, np.int64)), x[own[n : n + max(least, n)]]
    mean = x[own[-30:]].mean(axis=0, keepdims=True)
    return build_gallery(members, held_out[:-30], mean, keep_pixels), members, held_out[:n]


@pytest.mark.parametrize(
    ("reconstruction", "who"), [(-1.0, [1, 0]), (10.5, [0, 1]), (5.0, [0, 0]), (2.4, [0, 0]), (15.0, [0, 0])]
)
def test_a_person_is_named_who_is_nearer_than_all_else(reconstruction: float, who: list[int]) -> None:
    assert name_people(column(reconstruction), example()).members.tolist() == [who]


def test_held_out_people_are_named_by_the_same_rule() -> None:
    assert name_people(column(19.0, 4.0, 6.0), example()).held_out.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_members_as_near_as_each_other_share_one_hit_and_others_take_it_away() -> None:
    gallery = NamingGallery(
        members=column(1, 1, 5), held_out=column(5), class_means=column(9), member_means=column(7)
    )
    named = name_people(column(0.0, 5.0), gallery)
    assert named.members.tolist() == [[0.5, 0.5, 0], [0, 0, 0]]
    assert named.held_out.tolist() == [[0], [0]]
    assert named.hits.tolist() == [1, 0]


def test_what_is_no_number_names_nobody() -> None:
    assert name_people(column(np.nan), example()).hits.tolist() == [0]


def test_equal_images_have_no_mean_of_their_own_and_each_class_has_one() -> None:
    assert len(average_members(Examples(x=column(3, 3), y=np.zeros(2, np.int64)))) == 0
    means = average_members(Examples(x=column(0, 2, 10), y=np.array([0, 0, 1])))
    assert means.ravel().tolist() == [4, 1]


@pytest.mark.parametrize(("n", "first"), [(2, 0.93), (5, 0.82), (10, 0.69), (20, 0.63)])
def test_the_mean_of_digits_names_nobody_though_a_member_comes_first(n: int, first: float) -> None:
    rng, named, ahead = np.random.default_rng(n), [], []
    for _ in range(DRAWS):
        gallery, members, others = digits(n, rng)
        mean = members.x.mean(axis=0, keepdims=True)
        named.append(name_people(mean, gallery).hits[0])
        near = [-((some - mean) ** 2).sum(axis=(1, 2, 3)) for some in (members.x, others)]
        ahead.append(compare_by_class(*near, members.y, np.zeros(len(others), np.int64)).hit)  # type: ignore[call-arg]
    assert sum(named) == 0
    assert np.mean(ahead) == pytest.approx(first, abs=0.08)  # what was graded before


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 1.0, 1.0), (0.6, 0.97, 1.0), (0.4, 0.0, 0.03)])
@pytest.mark.parametrize("n", [2, 10, 20])
def test_a_member_is_named_and_so_is_most_of_one(n: int, share: float, least: float, most: float) -> None:
    rng, named = np.random.default_rng(n), []
    for _ in range(DRAWS):
        gallery, members, _ = digits(n, rng)
        leaning = share * members.x[:1] + (1 - share) * members.x.mean(axis=0, keepdims=True)
        named.append(name_people(leaning, gallery).members[0, 0])
    assert least <= np.mean(named) <= most


def test_members_that_nobody_knows_are_named_as_often_as_held_out_people() -> None:
    rng, members, held_out = np.random.default_rng(0), [], []
    for _ in range(2000):
        x, means = rng.normal(size=(21, 4)), np.zeros((1, 4))
        gallery = NamingGallery(members=x[:5], held_out=x[5:20], class_means=means, member_means=means[:0])
        named = name_people(x[20:], gallery)
        members.append(named.members.mean())
        held_out.append(named.held_out.mean())
    assert np.mean(members) == pytest.approx(np.mean(held_out), rel=0.15)
