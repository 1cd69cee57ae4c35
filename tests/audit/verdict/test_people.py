"""How many a finding concerns, and how often an accusation is right: known answers."""

import dataclasses

import numpy as np
import pytest

from fedaudit.attacks.counts._counts import blind_counts, revealed
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.verdict.people import accusations, exposed

HELD = np.array([[1, 2, 97], [2, 0, 98]])  # 200 examples; 1 + 2 + 2 in groups of at most two


def rank1(n: int, value: float) -> Evidence:
    blind = (Baseline(name="chance", value=0.1, interval=(0.1, 0.1)),)
    return Evidence(
        measure="rank1",
        value=value,
        unit="fraction",
        trials=500,
        interval=(value - 0.05, value + 0.05),
        baselines=blind,
        condition={"n": n},
    )


def tpr(value: float) -> Evidence:
    return Evidence(measure="tpr_at_fpr_0.01", value=value, unit="fraction", trials=500, interval=(value, value))


def test_groups_up_to_the_last_clear_n_are_counted_and_weighted_by_the_rate() -> None:
    curve = [rank1(1, 0.9), rank1(2, 0.5), rank1(20, 0.1)]
    found = exposed(curve[0], curve, HELD)
    assert found is not None and (found.examples, found.of) == (5, 200)
    assert found.expected == pytest.approx(1 * 0.8 + 4 * 0.4)
    assert found.text.startswith("5 of 200 examples") and "groups of at most 2" in found.text


def test_what_the_auditor_sent_itself_exposes_nobody() -> None:
    planted = dataclasses.replace(rank1(100, 0.9), control="positive")
    curve = [rank1(1, 0.9), rank1(2, 0.5), planted]
    assert exposed(curve[0], curve, HELD) == exposed(curve[0], curve[:2], HELD)


def test_nobody_stands_in_groups_so_small_or_nobody_is_known() -> None:
    assert exposed(rank1(1, 0.9), [rank1(1, 0.9)], np.array([[50, 50]])) is None
    assert exposed(rank1(1, 0.9), [rank1(1, 0.9)], np.zeros((0, 0), np.int64)) is None


def test_a_rate_of_recognised_members_is_taken_of_all() -> None:
    found = exposed(tpr(0.25), [tpr(0.25)], HELD)
    assert found is not None and found.expected == 50 and "one false alarm in 100" in found.text


@pytest.mark.parametrize(("prior", "right"), [(0.5, 0.25 / 0.26), (0.01, 0.0025 / (0.0025 + 0.0099))])
def test_an_accusation_is_right_as_bayes_says(prior: float, right: float) -> None:
    (found,) = accusations([tpr(0.25), rank1(1, 0.9)], prior)
    assert found.right == pytest.approx(right)


def test_without_a_declared_prior_nothing_is_said() -> None:
    assert accusations([tpr(0.25)], None) == []


def test_counts_of_evenly_spread_data_reveal_nothing_of_people_and_small_groups_do() -> None:
    even = np.full((10, 4), 25)
    flat = {e.measure: e.value for e in revealed(even, even, blind_counts(even, np.ones(4)), 5, {})}
    assert flat == {"examples_in_small_cells": 0.0}
    odd = even.copy()
    odd[0] = [0, 0, 4, 96]
    odd[:, 0] = [0] * 9 + [25]
    told = {e.measure: e for e in revealed(odd, odd, blind_counts(odd, np.ones(4)), 5, {})}
    assert told["examples_in_small_cells"].value == 4 / odd.sum()
    assert told["rare_class_holders"].value == 0.1  # the last client alone holds the first class
    wrong = {e.measure: e.value for e in revealed(odd + 1, odd, blind_counts(odd, np.ones(4)), 5, {})}
    assert wrong == {"examples_in_small_cells": 0.0, "rare_class_holders": 0.1}
