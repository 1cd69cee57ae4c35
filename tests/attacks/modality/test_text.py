"""Text: token F1, ROUGE-L, matching without replacement, rare tokens, and the words of the report's sentences."""

import numpy as np
import pytest

from fedaudit.attacks.modality.text import (
    Background,
    Overlap,
    align_texts,
    compare_texts,
    compute_distance,
    compute_f1,
    compute_rouge_l,
    draw_texts,
    mark_tokens,
    match_texts,
    strip,
)

A, B, C, D, E = 1, 2, 3, 4, 5


def test_token_f1_of_a_b_c_c_and_a_c_d() -> None:
    assert compute_f1([A, B, C, C], [A, C, D]) == pytest.approx(0.571429, abs=1e-6)
    assert compute_distance([A, B], [B, A]) == 0


def test_rouge_l_of_a_b_c_d_e_and_a_c_e_b() -> None:
    assert compute_rouge_l([A, B, C, D, E], [A, C, E, B]) == pytest.approx(0.666667, abs=1e-6)
    assert compute_rouge_l([A, B], [B, A]) == 0.5  # F1 of the bags is 1


def test_nothing_is_like_an_empty_text() -> None:
    assert compute_f1([], [A]) == compute_rouge_l([], [A]) == compute_f1([], []) == 0


def test_one_good_claim_stands_for_one_text_only() -> None:
    """With replacement, and the truth in hand, it would score both."""
    truth = [(A, B, C), (A, B, D)]
    assert sorted(match_texts([(A, B, C)], truth)) == [-1, 0]
    found = compare_texts([(A, B, C)], truth)
    assert found.exact.tolist() == [True, False] and found.f1.tolist() == [1.0, 0.0]


def test_a_claim_that_suits_two_texts_best_is_given_to_one_of_them() -> None:
    assert match_texts([(A, B, C), (E,)], [(A, B, C), (A, B, D)]) == [0, -1]


def test_matching_takes_the_greatest_sum() -> None:
    truth = [(A, B, C, D), (A, B)]
    assert match_texts([(A, B), (A, B, C)], truth) == [1, 0]


def test_rare_tokens_are_those_of_less_than_one_text_in_a_hundred() -> None:
    texts = np.array([[A, B if i < 1 else 0] for i in range(100)] + [[A, 0]] * 100)
    known = Background.from_texts(texts, 6)
    assert known.rare.tolist() == [True, False, True, True, True, True]
    assert np.flatnonzero(known.claim_commonest(2)).tolist() == [A, B]


def test_a_set_of_tokens_beside_the_true_one() -> None:
    rare = np.array([True, False, True, False])
    found = Overlap.from_claim(np.array([False, True, True, True]), np.array([False, False, True, True]), rare)
    assert (found.precision, found.recall, found.rare_recall) == (pytest.approx(2 / 3), 1.0, 1.0)
    assert Overlap.from_claim(np.zeros(4, bool), np.array([False, True, False, False]), rare).rare_recall is None


def test_padding_and_tokens_of_another_vocabulary_are_none() -> None:
    assert np.flatnonzero(mark_tokens(np.array([[2, 0, 9]]), 4)).tolist() == [2]
    assert strip(np.array([3, 4, 0, 0])) == (3, 4)


def test_random_texts_are_different_ones() -> None:
    drawn = draw_texts(np.array([[1], [2], [3]]), 9, np.random.default_rng(0))
    assert sorted(drawn) == [(1,), (2,), (3,)]


def test_words_are_right_elsewhere_wrong_or_missed() -> None:
    assert align_texts([A, C, B, E], [A, B, C, D]) == [
        (A, "right"),
        (C, "elsewhere"),
        (B, "elsewhere"),
        (E, "wrong"),
        (D, "missed"),
    ]
    assert align_texts([A, A], [A, B]) == [(A, "right"), (A, "wrong"), (B, "missed")]
