"""Both detectors: the numbers by hand, the two mended defects, and honest gradients told from hijacked ones."""

import math

import numpy as np
import pytest

from fedaudit.attacks.evaluation.split_detectors import (
    CHOICES,
    Similarities,
    compare_gradients,
    measure_fit,
    score_choices,
    score_scrutinizer,
    score_splitguard,
)

A = np.array


def rank(scores: np.ndarray) -> float:
    """The share of random choices that score as high as the true one."""
    return float((scores[1:] >= scores[0]).mean())


def test_splitguard_has_the_values_by_hand() -> None:
    assert score_splitguard(A([0.0, 2]), A([1.0, 0]), A([1.0, 0])) == pytest.approx(0.999224, abs=1e-6)
    assert score_splitguard(A([1.5, 0.0]), A([2.0, 0]), A([1.0, 0])) == pytest.approx(0.25)
    assert score_splitguard(A([1.0, 0]), A([1.0, 0]), A([1.0, 0])) == 0.0


@pytest.mark.parametrize(
    ("same", "other", "score"), [(0.9, 0.6, 0.65883), (0.9, 0.9, 0.029312), (0.8, 0.7, 0.072497)]
)
def test_scrutinizer_has_the_values_by_hand_and_no_gap_is_no_division_by_nothing(
    same: float, other: float, score: float
) -> None:
    assert score_scrutinizer(Similarities(same, other, 0.1, 0.1), 0.01) == pytest.approx(score, abs=1e-5)


def test_the_overlap_is_the_same_whichever_interval_is_higher() -> None:
    wide, narrow = (0.8, 0.3), (0.7, 0.05)
    gap = abs(wide[0] - narrow[0]) / (wide[0] + narrow[0])
    overlap = (0.75 - 0.65) / (1.1 - 0.5)
    x = gap**0.4 * math.log(7 * 0.01 + math.exp(-2)) * math.log(overlap + math.exp(-1))
    up = score_scrutinizer(Similarities(wide[0], narrow[0], wide[1], narrow[1]), 0.01)
    down = score_scrutinizer(Similarities(narrow[0], wide[0], narrow[1], wide[1]), 0.01)
    assert up == pytest.approx(1 / (1 + math.exp(-5 * (x - 0.7))))
    assert down == pytest.approx(1 / (1 + math.exp(-5 * (-x - 0.7))))


def test_gradients_of_a_classifier_are_apart_by_label_and_of_a_critic_they_are_not() -> None:
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    p = np.full((60, 3), 1 / 3) + rng.normal(scale=0.02, size=(60, 3))
    honest = (p - np.eye(3)[y]) @ rng.normal(size=(3, 30))
    hijacked = rng.normal(size=30) + 0.3 * rng.normal(size=(60, 30))
    scores = [score_scrutinizer(compare_gradients(g, y), 0.01) for g in (honest, hijacked)]
    assert scores[0] > 0.5 > scores[1]


def test_of_servers_that_ignore_labels_a_twentieth_is_cleared() -> None:
    rng, cleared = np.random.default_rng(3), 0
    for _ in range(200):
        means = (
            rng.normal(size=8) + rng.normal(size=(30, 8)) * np.linspace(3, 1, 30)[:, None]
        )  # smaller with time
        scores = score_choices(means, rng.permutation(30) < 5, rng)
        cleared += int((1 + (scores[1:] >= scores[0]).sum()) / (1 + CHOICES) <= 0.05)
    assert 3 <= cleared <= 19  # beyond with chance .01


def test_which_batches_have_false_labels_matters_to_a_classifier_and_not_to_a_critic() -> None:
    rng, is_false = np.random.default_rng(4), np.arange(40) % 5 == 2
    critic = rng.normal(size=16) + 0.3 * rng.normal(size=(40, 16))
    classifier = np.where(is_false[:, None], 3.0, 1.0) * rng.normal(size=16) * np.where(is_false, -1, 1)[:, None]
    classifier = classifier + 0.3 * rng.normal(size=(40, 16))
    assert rank(score_choices(classifier, is_false, np.random.default_rng(1))) == 0
    assert rank(score_choices(critic, is_false, np.random.default_rng(1))) > 0.05
    first, others = score_choices(critic, is_false, np.random.default_rng(1))[0], critic[~is_false]
    by_hand = score_splitguard(critic[is_false].mean(0), others[::2].mean(0), others[1::2].mean(0))
    assert first == pytest.approx(float(by_hand))


def test_false_labels_turn_gradients_of_a_classifier_and_not_those_of_a_critic() -> None:
    rng, y, head = np.random.default_rng(1), np.arange(600) % 4 // 3, rng_head()
    p = np.clip(
        np.where(np.arange(2) == y[:, None], 0.95, 0.05) + rng.normal(scale=0.02, size=(600, 2)), 0.01, 0.99
    )

    def mean(labels: np.ndarray, rows: slice) -> np.ndarray:
        return np.asarray(((p - np.eye(2)[labels]) @ head)[rows].mean(0))

    honest = score_splitguard(mean(1 - y, slice(0, 200)), mean(y, slice(200, 400)), mean(y, slice(400, 600)))
    critic = rng.normal(size=16)
    three = [critic + 0.05 * rng.normal(size=16) for _ in range(3)]
    assert honest > 0.9 > 0.5 > score_splitguard(three[0], three[1], three[2])


def rng_head() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(2, 16))


def test_the_fit_of_a_quadratic_is_exact_and_few_batches_have_none() -> None:
    assert measure_fit([(i / 9) ** 2 - i for i in range(9)]) == pytest.approx(0, abs=1e-9)
    assert measure_fit([1.0, 5.0, 2.0]) == 0.0
    assert measure_fit([0.0, 1.0, 0.0, 1.0, 0.0]) > 0.3
