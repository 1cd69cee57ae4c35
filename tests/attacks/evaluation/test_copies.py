"""Copies are found wherever they stand, whatever their scale, offset and sign, at their first place."""

import numpy as np

from fedaudit.attacks.evaluation.copies import find_copies

RNG = np.random.default_rng(0)
EXAMPLES = RNG.random((5, 64)).astype(np.float32)


def test_the_first_place_of_every_copy_is_named_and_no_other_example() -> None:
    numbers = RNG.normal(0, 1, 150_000).astype(np.float32)
    for example, begin, scale, offset in (
        (3, 70_000, -2.0, 5.0),
        (3, 100, 0.5, -1.0),
        (3, 5000, 2.0, 0.0),
        (0, 65_530, 1e-3, 0.0),
    ):
        numbers[begin : begin + 64] = scale * EXAMPLES[example] + offset
    assert [tuple(c) for c in find_copies(numbers, EXAMPLES)] == [(0, 65_530), (3, 100)]


def test_what_is_known_by_the_same_stretch_is_compared_in_full() -> None:
    """Ten thousand places look like parts of each example, and one of them is the example."""
    alike = np.tile(EXAMPLES[1, :20], 3)[:60]
    examples = np.stack([np.concatenate([alike, tail]) for tail in (EXAMPLES[2, :4], EXAMPLES[3, :4])])
    numbers = np.tile(EXAMPLES[1, :20], 10_000)
    numbers[100_000:100_064] = examples[1]
    assert [tuple(c) for c in find_copies(numbers, examples)] == [(1, 100_000)]


def test_numbers_that_are_all_alike_hold_nothing() -> None:
    assert find_copies(np.full(1000, 3.0), EXAMPLES) == find_copies(EXAMPLES[0, :63], EXAMPLES) == []


def test_beside_a_large_number_a_copy_is_found_as_well() -> None:
    numbers = np.r_[np.float32(1e15), RNG.normal(0, 1, 500), 1e-3 * EXAMPLES[2], RNG.normal(0, 1, 50)]
    assert [tuple(c) for c in find_copies(numbers, EXAMPLES)] == [(2, 501)]


def test_a_place_that_several_fit_nearly_as_well_is_nobody_s() -> None:
    """As rows of a table with columns in unlike units, of which each is like the mean of all."""
    units = 2.0 ** np.arange(24) * (1 + 0.1 * RNG.random((20, 24)))
    rows = np.asarray(units, np.float32)
    assert find_copies(rows.mean(axis=0), rows) == []
    assert [tuple(c) for c in find_copies(np.concatenate([rows.mean(axis=0), 2 * rows[4]]), rows)] == [(4, 24)]
    assert [c.example for c in find_copies(rows[4], rows[[1, 4, 7, 4]])] == [1, 3]
