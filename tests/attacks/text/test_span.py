"""The span of a linear map's change: the law of its rank, what rounding hides, and what lies in it."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.span import (
    MapChange,
    RowSpace,
    compute_span,
    compute_strengths,
    count_law,
    find_pairs,
    list_pairs,
    rank_tokens,
    weigh_directions,
)

A, B, C = 1, 2, 3
RNG = np.random.default_rng(0)
TOKENS, PLACES = RNG.normal(size=(40, 64)), RNG.normal(size=(6, 64))
INPUTS = TOKENS[:, None] + PLACES[None]  # [V, P, d]


def changed(texts: list[list[int]], rows: int = 64, digits: type = np.float32, size: float = 1e-2) -> MapChange:
    """What one step does to weights [rows, 64] with the inputs of these texts, as a difference of float32."""
    pairs = sorted({(v, p) for text in texts for p, v in enumerate(text)})
    weights = RNG.normal(size=(rows, 64)).astype(digits)
    inputs = np.stack([INPUTS[v, p] for v, p in pairs])
    step = size * RNG.normal(size=(rows, len(pairs))) @ inputs
    after = (weights + step).astype(digits)
    return MapChange(change=np.asarray(after, np.float64) - weights, weights=np.asarray(weights, np.float64))


def find(span: RowSpace) -> np.ndarray:
    return find_pairs(span, span.compute_residuals(INPUTS))


@pytest.mark.parametrize(
    ("texts", "rank"),
    [
        ([[A, B], [B, A]], 3),
        ([[A, B, A], [A, C]], 4),
        ([[A]], 1),
        ([[A, B]], 2),  # two components
        ([[A, A, A]], 3),
        ([[A, B], [A, C]], 3),
    ],
)
def test_the_law_is_tokens_plus_positions_minus_components(texts: list[list[int]], rank: int) -> None:
    pairs = {(v, p) for text in texts for p, v in enumerate(text)}
    assert count_law(pairs) == rank
    stacked = np.stack([INPUTS[v, p] for v, p in sorted(pairs)])
    assert np.linalg.matrix_rank(stacked) == rank


def test_without_added_positions_the_law_counts_tokens() -> None:
    assert count_law({(A, 0), (A, 1), (B, 1)}, added=False) == 2


def test_the_rank_above_rounding_is_the_law_for_random_texts() -> None:
    for count in (1, 2, 4, 8):
        texts = RNG.integers(1, 40, (count, 6)).tolist()
        law = count_law({(v, p) for text in texts for p, v in enumerate(text)})
        assert compute_span([changed(texts)]).rank == law


def test_the_tokens_of_a_text_lie_in_the_span_and_no_others() -> None:
    text = [5, 9, 9, 30]
    found = find(compute_span([changed([text])]))
    assert {v for v, _ in zip(*np.nonzero(found), strict=True)} == {5, 9, 30}
    assert all(found[v, p] for p, v in enumerate(text))


def test_a_full_span_claims_nothing() -> None:
    span = compute_span([changed(RNG.integers(1, 40, (30, 6)).tolist(), rows=64)])
    some = compute_span([changed(RNG.integers(1, 40, (400, 6)).tolist(), rows=200)])
    assert span.rank < 64 and some.rank < 64  # 40 tokens and 6 positions: never more than 45
    full = compute_span([MapChange(change=np.eye(8), weights=np.ones((8, 8)))])
    assert full.is_full and not find_pairs(full, full.compute_residuals(RNG.normal(size=(5, 3, 8)))).any()


def test_fewer_rows_than_the_law_hide_the_tokens_and_more_rounds_show_them() -> None:
    """An adapter of rank 2 on a text of four tokens: two rounds of it are four rows."""
    text = [[5, 9, 12, 30]]
    rounds = [changed(text, rows=2) for _ in range(2)]
    assert not find(compute_span(rounds[:1])).any()
    found = find(compute_span(rounds))
    assert sorted(np.nonzero(found.any(axis=1))[0]) == sorted(text[0])


def test_a_round_that_drowns_in_rounding_takes_nothing_from_the_others() -> None:
    text = [[5, 9]]
    drowned = changed(text, rows=2, size=1e-9)
    span = compute_span([drowned, changed(text, rows=2)])
    assert span.rank == 2
    assert sorted(np.nonzero(find(span).any(axis=1))[0]) == [5, 9]


def test_noise_silences_the_exact_test_and_not_the_ranked_one() -> None:
    text = [[5, 9, 12, 30]]
    block = changed(text)
    noised = MapChange(change=block.change + 1e-3 * RNG.normal(size=block.change.shape), weights=block.weights)
    assert not find(compute_span([noised])).any()
    order = np.argsort(-rank_tokens(compute_strengths(weigh_directions([noised]), INPUTS)))
    assert set(order[:4].tolist()) == set(text[0])


def test_what_did_not_change_has_no_span() -> None:
    with pytest.raises(ValueError, match="no linear map changed"):
        compute_span([MapChange(change=np.zeros((2, 3)), weights=np.ones((2, 3)))])


def test_padding_is_no_token() -> None:
    assert list_pairs(np.array([[4, 0], [4, 5]])) == {(4, 0), (5, 1)}
