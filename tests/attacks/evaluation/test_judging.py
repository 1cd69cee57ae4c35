"""Evidence of trials: intervals corrected for all comparisons, baselines of the same trials, a measure's unit."""

import numpy as np
import pytest

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import CONFIDENCE, CONTROL_CONFIDENCE, Judge
from fedaudit.attacks.evaluation.ranking import First, Present
from fedaudit.attacks.evidence import Baseline
from fedaudit.attacks.stats import INDEPENDENT

HITS = np.array([1.0, 0.0, 0.5, 1.0])


def test_hits_are_a_share_with_an_exact_interval_beside_chance_and_blind_adversaries() -> None:
    judge = Judge(looks=5, condition={"n": 2.0}, note="all of them")
    e = judge.judge_hits(
        "rank1", HITS, {"class mean": np.zeros(4)}, groups=INDEPENDENT, chance=0.25, note="of a gallery"
    )
    alpha = (1 - CONFIDENCE) / 5
    assert (e.value, e.trials, e.looks, e.unit) == (0.625, 4, 5, "fraction")
    assert e.interval == stats.clopper_pearson(2.5, 4, alpha)
    assert e.baselines == (
        Baseline(name="chance", value=0.25),
        Baseline(name="class mean", value=0.0, interval=stats.clopper_pearson(0, 4, alpha)),
    )
    assert e.note == "of a gallery; all of them" and e.place == "n = 2"


def test_values_have_the_unit_and_direction_of_their_measure() -> None:
    rng = np.random.default_rng(0)
    e = Judge().judge_values("audit_net_distance", HITS, {"class mean": 2 * HITS}, rng, groups=INDEPENDENT)
    assert (e.unit, e.higher_is_worse, e.value) == ("index", False, 0.625)
    assert e.baselines == (Baseline(name="class mean", value=1.25),)
    (both,) = (
        Judge()
        .judge_values("psnr", HITS, {"mean": HITS}, rng, groups=INDEPENDENT, is_blind_bounded=True)
        .baselines
    )
    assert both.interval == e.interval


def test_negative_controls_have_the_confidence_of_controls() -> None:
    assert Judge(control="negative").alpha == 1 - CONTROL_CONFIDENCE
    assert (
        Judge(control="negative").judge_hits("rank1", HITS, groups=INDEPENDENT).confidence == CONTROL_CONFIDENCE
    )
    assert Judge(control="positive").judge_hits("rank1", HITS, groups=INDEPENDENT).confidence == CONFIDENCE


def test_a_measure_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no row"):
        Judge().judge_hits("luck", HITS, groups=INDEPENDENT)


def test_firsts_are_compared_with_the_chance_of_their_own_classes() -> None:
    firsts = [First(1.0, 0.5), First(0.0, 0.25)]
    (e,) = Judge(note="not of these").judge_firsts(firsts, [], "another", groups=INDEPENDENT)
    assert (e.value, e.note) == (0.5, "messages for which one of the members is ahead of as many non-members")
    assert e.baselines == (Baseline(name="chance", value=0.375),)
    assert Judge().judge_firsts([], firsts, "another", groups=INDEPENDENT) == []


def test_images_that_stand_somewhere_are_compared_with_those_of_nobody() -> None:
    e = Judge(note="messages").judge_present([Present(True, False), Present(False, True)], groups=INDEPENDENT)
    assert (e.measure, e.value, e.baselines[0].value) == ("image_present", 0.5, 0.5)
