"""Intervals agree with tables and scipy, and raise no alarm where there is no effect."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn.metrics import roc_auc_score

from fedaudit.attacks import stats

RUNS, ALPHA = 200, 0.05
MOST = ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / RUNS)  # 0.096: false alarms allowed by chance


def test_wilson_gives_the_numbers_of_newcombe_1998() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
    assert stats.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert stats.wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert stats.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert stats.wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_clopper_pearson_gives_the_numbers_of_newcombe_1998() -> None:
    assert stats.clopper_pearson(81, 263) == pytest.approx((0.2527, 0.3676), abs=5e-5)
    assert stats.clopper_pearson(0, 20) == pytest.approx((0.0, 0.1684), abs=5e-5)


@pytest.mark.parametrize("hits", [0, 3, 17, 40])
def test_proportions_agree_with_scipy(hits: int) -> None:
    test = scipy_stats.binomtest(hits, 40)
    wilson, exact = test.proportion_ci(0.99, "wilson"), test.proportion_ci(0.99, "exact")
    assert stats.wilson(hits, 40, 0.01) == pytest.approx((wilson.low, wilson.high))
    assert stats.clopper_pearson(hits, 40, 0.01) == pytest.approx((exact.low, exact.high))


def test_no_trials_say_nothing() -> None:
    assert stats.wilson(0, 0) == stats.clopper_pearson(0, 0) == (0.0, 1.0)


def test_twenty_corrected_intervals_hold_together() -> None:
    wrong = 0
    for seed in range(RUNS):
        hits = np.random.default_rng(seed).binomial(200, 0.5, size=20)
        alpha = stats.correct_alpha(ALPHA, 20)
        bounds = [stats.clopper_pearson(h, 200, alpha) for h in hits]
        wrong += any(not low <= 0.5 <= high for low, high in bounds)
    assert wrong / RUNS <= MOST


@pytest.mark.parametrize(
    ("interval", "rate"),
    [(stats.wilson, 0.1), (stats.wilson, 0.5)] + [(stats.clopper_pearson, rate) for rate in (0.01, 0.1, 0.5)],
)
def test_proportions_cover_the_true_rate(
    interval: Callable[[float, int, float], stats.Interval], rate: float
) -> None:
    low, high = np.array(
        [interval(np.random.default_rng(seed).binomial(100, rate), 100, ALPHA) for seed in range(RUNS)]
    ).T
    assert np.mean((low > rate) | (high < rate)) <= MOST


@pytest.mark.parametrize("skewed", [False, True])
def test_bootstrap_of_paired_differences_is_silent_without_a_difference(skewed: bool) -> None:
    alarms = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        x = rng.exponential(size=40) - 1 if skewed else rng.normal(size=40)
        low, high = stats.mean_interval(x, rng, groups=stats.INDEPENDENT, resamples=999) or (np.nan, np.nan)
        alarms += not low <= 0 <= high
    assert alarms / RUNS <= MOST


def test_bootstrap_resamples_whole_groups() -> None:
    alarms, naive = 0, 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(25), 20)
        x = rng.normal(size=25)[groups] + 0.1 * rng.normal(size=500)  # one draw a group
        for grouped in (True, False):
            low, high = stats.mean_interval(
                x, rng, groups=groups if grouped else stats.INDEPENDENT, resamples=499
            ) or (np.nan, np.nan)
            alarms += grouped and not low <= 0 <= high
            naive += not grouped and not low <= 0 <= high
    assert alarms / RUNS <= MOST
    assert naive / RUNS > 0.3  # the mistake that grouping prevents


def test_equal_values_never_have_an_interval_of_zero_width() -> None:
    rng = np.random.default_rng(0)
    assert stats.mean_interval(np.zeros(20), rng, groups=stats.INDEPENDENT) is None
    low, high = stats.mean_interval(np.zeros(20), rng, groups=stats.INDEPENDENT, bounds=(-1, 1)) or (0, 0)
    assert low < 0 < high
    assert stats.mean_interval(np.ones(20), rng, groups=stats.INDEPENDENT, bounds=(0, 1)) == pytest.approx(
        (0.8389, 1.0), 1e-4
    )


def test_auc_is_the_one_of_scikit_learn_with_ties() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 9, 50), rng.integers(0, 7, 80)
    expected = roc_auc_score(np.r_[np.ones(50), np.zeros(80)], np.r_[x, y])
    assert stats.auc(x, y, groups=stats.INDEPENDENT).value == pytest.approx(expected)


def test_auc_interval_has_the_width_of_delong() -> None:
    # DeLong's variance by its definition, on a sample small enough to write out
    x, y = np.array([1.0, 2.5, 4.0]), np.array([0.0, 2.0, 3.0, 1.5])
    wins = (x[:, None] > y).astype(float)
    expected = wins.mean(1).var(ddof=1) / 3 + wins.mean(0).var(ddof=1) / 4
    found = stats.auc(x, y, groups=stats.INDEPENDENT)
    area = found.value
    reach = np.log(found.interval[1] / (1 - found.interval[1])) - np.log(area / (1 - area))
    deviation = reach * area * (1 - area) / scipy_stats.t.isf(0.025, 2)
    assert deviation**2 == pytest.approx(expected)


def test_auc_is_silent_without_a_difference() -> None:
    alarms = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        low, high = stats.auc(rng.normal(size=60), rng.normal(size=90), groups=stats.INDEPENDENT).interval
        alarms += not low <= 0.5 <= high
    assert alarms / RUNS <= MOST


def test_auc_of_grouped_scores_is_silent_without_a_difference() -> None:
    alarms, naive = 0, 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        gx, gy = np.repeat(np.arange(20), 10), np.repeat(np.arange(20, 40), 10)
        shift = rng.normal(size=40)
        x, y = rng.normal(size=200) + shift[gx], rng.normal(size=200) + shift[gy]
        low, high = stats.auc(x, y, groups=(gx, gy)).interval
        alarms += not low <= 0.5 <= high
        low, high = stats.auc(x, y, groups=stats.INDEPENDENT).interval
        naive += not low <= 0.5 <= high
    assert alarms / RUNS <= MOST
    assert naive / RUNS > 0.2


@pytest.mark.sample(1)
@pytest.mark.parametrize("shared", [False, True])
def test_auc_interval_is_as_wide_as_the_area_varies(shared: bool) -> None:
    # where both samples of a group move together the area varies less than where they do not
    areas, widths = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        g = np.repeat(np.arange(30), 10)
        shift = rng.normal(size=60)
        x = rng.normal(size=300) + shift[g]
        y = rng.normal(size=300) + shift[g if shared else g + 30]
        found = stats.auc(x, y, groups=(g, g if shared else g + 30))
        areas.append(found.value)
        widths.append((found.interval[1] - found.interval[0]) / 2 / scipy_stats.t.isf(0.025, 29))
    assert np.mean(widths) == pytest.approx(np.std(areas), rel=0.15)


def test_auc_interval_of_many_groups_has_the_width_of_obuchowski() -> None:
    # a member and a non-member in each of 50 groups, which move together; sums over groups by their definition
    rng, groups = np.random.default_rng(5), np.arange(50)
    shift = rng.normal(size=50)
    x, y = shift + 0.5 * rng.normal(size=50) + 0.3, shift + 0.5 * rng.normal(size=50)
    wins = (x[:, None] > y).astype(float)
    area = wins.mean()
    expected = 50 / 49 * ((wins.mean(1) - area + wins.mean(0) - area) ** 2).sum() / 50**2
    found = stats.auc(x, y, groups=(groups, groups))
    reach = np.log(found.interval[1] / (1 - found.interval[1])) - np.log(area / (1 - area))
    deviation = reach * area * (1 - area) / scipy_stats.t.isf(0.025, 49)
    assert found.value == pytest.approx(area) and deviation**2 == pytest.approx(expected)
    assert deviation**2 < 0.6 * (wins.mean(1).var() + wins.mean(0).var()) / 50  # what moves together says less


def test_auc_of_perfect_separation_keeps_a_width() -> None:
    found = stats.auc([2, 3, 4, 5], [0, 1, 1], groups=stats.INDEPENDENT)
    assert found.value == 1
    assert found.interval == pytest.approx((0.2924, 1.0), abs=1e-4)  # 3 of 3, Clopper-Pearson


def test_auc_refuses_an_empty_sample() -> None:
    with pytest.raises(ValueError, match="got 0 members"):
        stats.auc([], [1.0], groups=stats.INDEPENDENT)


@pytest.mark.parametrize("fpr", [0.01, 0.1])
def test_tpr_is_silent_without_a_difference(fpr: float) -> None:
    alarms = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        found = stats.tpr_at_fpr(rng.normal(size=400), rng.normal(size=400), fpr, groups=stats.INDEPENDENT)
        assert found is not None
        alarms += not found.interval[0] <= fpr <= found.interval[1]
    assert alarms / RUNS <= MOST


def test_tpr_of_grouped_scores_is_silent_without_a_difference() -> None:
    alarms = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        g = np.repeat(np.arange(30), 20)
        x, y = (rng.normal(size=600) + rng.normal(size=30)[g] for _ in range(2))
        found = stats.tpr_at_fpr(x, y, 0.1, groups=(g, g))
        assert found is not None
        alarms += not found.interval[0] <= 0.1 <= found.interval[1]
    assert alarms / RUNS <= MOST


def test_tpr_counts_members_above_the_allowed_false_alarms() -> None:
    others = np.arange(100.0)  # one false alarm in 100 is allowed: the threshold is 98
    found = stats.tpr_at_fpr([98.0, 98.5, 99.5, 200.0], others, 0.01, groups=stats.INDEPENDENT)
    assert found is not None and found.value == 0.75


def test_tpr_below_one_over_the_negatives_does_not_exist() -> None:
    assert stats.tpr_at_fpr(np.ones(50), np.zeros(999), 0.001, groups=stats.INDEPENDENT) is None
    assert stats.tpr_at_fpr(np.ones(50), np.zeros(1000), 0.001, groups=stats.INDEPENDENT) is not None


def test_roc_runs_from_corner_to_corner() -> None:
    curve = stats.roc([1, 2, 3], [0, 1.5, 0.5])
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(
        stats.auc([1, 2, 3], [0, 1.5, 0.5], groups=stats.INDEPENDENT).value
    )


def residual_risk(hits: int, trials: int, control: int, others: int) -> stats.Estimate | None:
    both = (np.arange(n) < k for k, n in ((hits, trials), (control, others)))
    return stats.residual_risk(*both, groups=(stats.INDEPENDENT, stats.INDEPENDENT))


def test_residual_risk_takes_the_control_out() -> None:
    found = residual_risk(60, 100, 20, 100)
    assert found is not None and found.value == pytest.approx(0.5)  # (.6 - .2) / (1 - .2)
    assert found.interval[0] < 0.5 < found.interval[1]


def test_residual_risk_without_control_hits_is_nearly_the_exact_interval() -> None:
    found = residual_risk(30, 60, 0, 100000)
    assert found is not None and found.interval == pytest.approx(stats.clopper_pearson(30, 60), abs=1e-4)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_residual_risk_is_silent_without_a_difference(rate: float) -> None:
    alarms = 0
    for seed in range(RUNS):
        main, control = np.random.default_rng(seed).binomial(150, rate, size=2)
        found = residual_risk(main, 150, control, 150)
        assert found is not None
        alarms += not found.interval[0] <= 0 <= found.interval[1]
    assert alarms / RUNS <= MOST


def test_residual_risk_is_undefined_when_the_control_always_succeeds() -> None:
    assert residual_risk(5, 10, 10, 10) is None
    assert residual_risk(5, 10, 0, 0) is None


# Few groups ---------------------------------------------------------------------------------

FEW = (3, 5, 8, 12)


def shifted(groups: int, effect: float, between: float, seed: int) -> tuple[np.ndarray, ...]:
    """Scores of members and others of each group, whose effects differ, and their groups."""
    rng = np.random.default_rng([seed, groups])
    gx, gy = np.repeat(np.arange(groups), 20), np.repeat(np.arange(groups), 40)
    own = rng.normal(effect, between, groups)
    return rng.normal(size=len(gx)) + own[gx], rng.normal(size=len(gy)), gx, gy


@pytest.mark.sample(2)
@pytest.mark.parametrize(("groups", "effect", "between"), [(3, 0, 0.7), (5, 1, 0.5), (8, 3, 0.5), (12, 0, 0.7)])
def test_the_auc_of_few_groups_is_covered(groups: int, effect: float, between: float) -> None:
    true, wrong = scipy_stats.norm.cdf(effect / np.sqrt(2 + between**2)), 0
    for seed in range(RUNS):
        x, y, gx, gy = shifted(groups, effect, between, seed)
        low, high = stats.auc(x, y, groups=(gx, gy)).interval
        wrong += not low <= true <= high
    assert wrong / RUNS <= MOST


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("groups", "effect", "between"), [(3, 4.5, 1.5), (3, 4.5, 0.3), (4, 4.5, 1.5), (6, 3, 1.5), (12, 4.5, 1.5)]
)
def test_the_lower_end_of_a_high_auc_of_few_groups_is_not_above_the_truth(
    groups: int, effect: float, between: float
) -> None:
    true, above = scipy_stats.norm.cdf(effect / np.sqrt(2 + between**2)), 0
    for seed in range(RUNS):
        x, y, gx, gy = shifted(groups, effect, between, seed)
        above += stats.auc(x, y, groups=(gx, gy)).interval[0] > true
    assert above / RUNS <= MOST / 2 + 0.02


def test_a_part_of_an_unlike_group_moves_the_far_end_towards_a_half_and_no_other() -> None:
    for area in (0.9, 0.1):
        low, high = stats._with_unlike_group(area, (area - 1e-9, area + 1e-9), 0.0, 5, 0.05)
        assert (low < area - 0.01) == (area > 0.5) and (high > area + 0.01) == (area < 0.5)
    assert stats._with_unlike_group(0.5, (0.3, 0.7), 0.3, 5, 0.05) == pytest.approx((0.3, 0.7), abs=0.12)


def test_four_clients_with_strong_effects_alarm_as_often_as_promised() -> None:
    alarms, naive = 0, 0
    for seed in range(RUNS):
        x, y, gx, gy = shifted(4, 0, 1, seed)
        alarms += stats.auc(x, y, groups=(gx, gy)).interval[0] > 0.5
        naive += stats.auc(x, y, groups=stats.INDEPENDENT).interval[0] > 0.5
    assert alarms / RUNS <= MOST / 2 + 0.02 and naive / RUNS > 0.12  # the mistake that grouping prevents


@pytest.mark.parametrize(("groups", "effect", "between"), [(3, 0, 0.7), (5, 1, 0.5), (12, 1, 0.5)])
def test_the_rate_at_few_false_positives_of_few_groups_is_covered(
    groups: int, effect: float, between: float
) -> None:
    true, wrong = scipy_stats.norm.sf((scipy_stats.norm.isf(0.1) - effect) / np.sqrt(1 + between**2)), 0
    for seed in range(RUNS):
        x, y, gx, gy = shifted(groups, effect, between, seed)
        low, high = stats.tpr_at_fpr(x, y, 0.1, groups=(gx, gy)).interval  # type: ignore[union-attr]
        wrong += not low <= true <= high
    assert wrong / RUNS <= MOST


@pytest.mark.parametrize("groups", FEW)
def test_the_mean_and_the_share_of_few_groups_are_covered(groups: int) -> None:
    index, means, shares = np.repeat(np.arange(groups), 10), 0, 0
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, groups])
        x = rng.normal(size=groups)[index] + 0.3 * rng.normal(size=len(index))
        low, high = stats.mean_interval(x, rng, groups=index) or (np.nan, np.nan)
        means += not low <= 0 <= high
        low, high = stats.bound_share(rng.random(len(index)) < rng.beta(1.5, 3.5, groups)[index], index)
        shares += not low <= 0.3 <= high
    assert means / RUNS <= MOST and shares / RUNS <= MOST


def test_ten_alike_in_each_of_ten_groups_are_worth_fewer_than_ten_trials() -> None:
    # by hand: a design effect of 100 / 9, and Student's t of 9 over the normal quantile, squared
    hits, groups = np.repeat(np.arange(10) % 2, 10), np.repeat(np.arange(10), 10)
    trials = 9 / (scipy_stats.t.isf(0.025, 9) / scipy_stats.norm.isf(0.025)) ** 2
    assert 6.7 < trials < 6.8
    assert stats.bound_share(hits, groups) == pytest.approx(stats.clopper_pearson(trials / 2, trials))
    assert stats.bound_share(hits, stats.INDEPENDENT) == pytest.approx(stats.clopper_pearson(50, 100))


def test_perfect_separation_in_few_groups_is_shown_and_not_certain() -> None:
    for groups, least in ((3, 0.5), (5, 0.85), (12, 0.95)):
        gx = np.repeat(np.arange(groups), 60)
        found = stats.auc(np.ones(len(gx)), np.zeros(len(gx)), groups=(gx, gx))
        assert found.value == found.interval[1] == 1 and least < found.interval[0] < 0.999
        worst = stats.auc(np.zeros(len(gx)), np.ones(len(gx)), groups=(gx, gx))
        assert worst.interval == pytest.approx((0, 1 - found.interval[0]))


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("groups", [3, 6])
def test_the_lower_end_of_perfect_separation_is_not_above_the_truth(groups: int, spread: float) -> None:
    index, perfect, missed = np.repeat(np.arange(groups), 5), 0, 0
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, groups, 7])
        x = rng.normal(3.5, spread, groups)[index] + rng.normal(size=len(index))
        found = stats.auc(x, rng.normal(size=len(index)), groups=(index, index))
        perfect += found.value == 1
        missed += found.value == 1 and found.interval[0] > scipy_stats.norm.cdf(3.5 / math.sqrt(2 + spread**2))
    assert perfect > 0.02 * RUNS and missed / RUNS <= MOST / 2


def test_two_groups_say_nothing_of_others() -> None:
    x, y, gx, gy = shifted(2, 3, 0, 0)
    assert stats.auc(x, y, groups=(gx, gy)).interval == (0, 1)
    assert stats.tpr_at_fpr(x, y, 0.1, groups=(gx, gy)).interval == (0, 1)  # type: ignore[union-attr]
    assert stats.bound_share(x > 2, gx) == (0, 1) and stats.count_needed_negatives(0.01, groups=2) is None
    assert stats.mean_interval(x, np.random.default_rng(0), groups=gx) is None


@pytest.mark.parametrize(("alpha", "groups"), [(0.05, None), (0.05 / 3, None), (0.05, 4)])
def test_that_many_negatives_are_the_first_with_which_perfect_separation_shows(
    alpha: float, groups: int | None
) -> None:
    def low(negatives: int) -> float:
        index = stats.INDEPENDENT if groups is None else (np.arange(300) % groups, np.arange(negatives) % groups)
        found = stats.tpr_at_fpr(np.ones(300), np.linspace(-1, 0, negatives), 0.01, alpha=alpha, groups=index)
        assert found is not None
        return found.interval[0]

    needed = stats.count_needed_negatives(0.01, alpha, groups)
    assert needed is not None and low(needed - 2) == 0 and low(needed + 2) > 0.9 - 0.3 * (groups is not None)
