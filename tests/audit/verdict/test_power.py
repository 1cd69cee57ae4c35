"""Power is that of the rules that decide: the vectors of the specification, and as many draws as it says."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED, Baseline, Evidence
from fedaudit.attacks.stats import INDEPENDENT, clopper_pearson
from fedaudit.audit.verdict.judge import judge
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.power import compute_power, count_effective, find_detectable, find_residual_risk
from fedaudit.audit.verdict.statistics import statistic
from fedaudit.reports.result import Outcome

POLICY = load_policy("default")


def rank1(hits: float, trials: int, blind: float, others: int = 0, **changes: object) -> Evidence:
    """Hits beside a baseline of so many trials, or beside a chance that is known."""
    looks = int(changes.get("looks", 1))  # type: ignore[call-overload]
    beside = Baseline(
        name="b", value=blind, interval=clopper_pearson(blind * others, others, 0.05 / looks) if others else None
    )
    fields: dict[str, object] = {
        "measure": "rank1",
        "value": hits / trials,
        "unit": "fraction",
        "trials": trials,
        "interval": clopper_pearson(hits, trials, 0.05 / looks),
        "baselines": (beside,),
    }
    return Evidence(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trials", "blind", "others", "looks", "risk"),
    [
        (150, 0.02, 150, 1, 0.078),
        (150, 0.02, 1500, 1, 0.049),
        (150, 0.02, 1500, 6, 0.063),
        (719, 0.02, 719, 6, 0.036),
    ],
)
def test_the_power_is_that_of_the_specification(
    trials: int, blind: float, others: int, looks: int, risk: float
) -> None:
    found = find_residual_risk(trials, blind, others, alpha=0.05 / looks)
    assert found == pytest.approx(risk, abs=6e-4)
    p = blind + found * (1 - blind)
    assert compute_power(p, trials, blind, others, alpha=0.05 / looks) == pytest.approx(0.8, abs=1e-4)


def test_it_is_the_sum_over_all_that_both_may_get() -> None:
    """Every pair of results of 40 and 30 trials, judged one by one."""
    total = 0.0
    for k in range(41):
        for y in range(31):
            e = rank1(k, 40, y / 30, 30)
            weight = scipy_stats.binom.pmf(k, 40, 0.35) * scipy_stats.binom.pmf(y, 30, 0.1)
            total += weight * (statistic(e, "excess") > 0)
    assert compute_power(0.35, 40, 0.1, 30, alpha=0.05) == pytest.approx(total, abs=1e-9)


def test_the_worst_place_is_quoted_and_there_the_best_measure() -> None:
    many, few = rank1(30, 1500, 0.02, condition={"n": 1}), rank1(3, 150, 0.02, condition={"n": 5})
    blunt = rank1(0, 10, 0.02, condition={"n": 5}, measure="rank5")
    alone = [find_detectable([e], POLICY) for e in (many, few, blunt)]
    assert alone == sorted(alone)
    assert find_detectable([many, few, blunt], POLICY) == alone[1]
    nothing = rank1(3, 150, 0.02, condition={"n": 9}, interval=None)
    assert find_detectable([many, nothing], POLICY) == math.inf == find_detectable([], POLICY)


def test_rules_that_ask_for_more_show_less() -> None:
    strict = POLICY.model_copy(update={"rules": tuple(r for r in POLICY.rules if r.id == "re-identified-high")})
    e = rank1(3, 150, 0.02)
    assert find_detectable([e], strict) > find_detectable([e], POLICY) + 0.1
    nothing = POLICY.model_copy(update={"rules": tuple(r for r in POLICY.rules if r.id == "rare-class-high")})
    assert find_detectable([e], nothing) == math.inf


def test_trials_of_few_clients_are_counted_as_the_independent_ones_that_they_are_worth() -> None:
    assert count_effective(0.1, clopper_pearson(20, 200, 0.05), 200, 0.05) == 200
    hits, clients = np.arange(200) % 40 < 4, np.arange(200) // 40
    grouped = Judge().judge_hits("rank1", hits, groups=clients, chance=0.02)
    assert grouped.interval is not None
    assert count_effective(0.1, grouped.interval, 200, 0.05) == pytest.approx(200 / (2.776 / 1.96) ** 2, abs=1)
    alone = Judge().judge_hits("rank1", hits, groups=INDEPENDENT, chance=0.02)
    assert find_detectable([grouped], POLICY) > find_detectable([alone], POLICY)


Draw = Callable[[np.random.Generator, float], Evidence]


def draw_beside_chance(rng: np.random.Generator, risk: float) -> Evidence:
    hits = rng.random(150) < 0.02 + 0.98 * risk
    return Judge().judge_hits("rank1", hits, groups=INDEPENDENT, chance=0.02)


def draw_beside_adversary(rng: np.random.Generator, risk: float) -> Evidence:
    hits, blind = rng.random(719) < 0.02 + 0.98 * risk, rng.random(719) < 0.02
    return Judge(looks=6).judge_hits("prototype_recovered", hits, {"b": blind}, groups=INDEPENDENT)


def draw_area(rng: np.random.Generator, risk: float) -> Evidence:
    distance = math.sqrt(2) * float(scipy_stats.norm.ppf(0.5 + 0.5 * risk))
    found = stats.auc(rng.normal(distance, 1, 300), rng.normal(0, 1, 300), groups=INDEPENDENT)
    return Judge().state("auc", found.value, 300, found.interval, [Baseline(name="chance", value=0.5)])


def measure_power(draw: Draw, draws: int, seed: int) -> tuple[float, float]:
    """The leak that is stated, at the middle of audits without one, and how often it is then demonstrated."""
    rng = np.random.default_rng(seed)
    stated = float(np.median([find_detectable([draw(rng, 0.0)], POLICY) for _ in range(9)]))
    shown = [judge([draw(rng, stated)], POLICY).outcome is Outcome.DEMONSTRATED for _ in range(draws)]
    return stated, float(np.mean(shown))


MEASURES: dict[str, Draw] = {
    "rank-1 beside chance": draw_beside_chance,
    "prototype recovered beside a baseline": draw_beside_adversary,
    "AUC": draw_area,
}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_leak_of_the_stated_size_is_shown_four_times_of_five(measure: str) -> None:
    _, power = measure_power(MEASURES[measure], 150, 3)
    assert 0.68 < power < 0.92


@pytest.mark.nightly
@pytest.mark.parametrize("measure", MEASURES)
def test_a_leak_of_the_stated_size_is_shown_in_800_of_1000_audits(measure: str) -> None:
    _, power = measure_power(MEASURES[measure], 1000, 4)
    assert power == pytest.approx(0.8, abs=0.05)


def planted(hits: int, origin: str) -> Evidence:
    return rank1(hits, 60, 0.02, condition={"n": 1, "origin": origin}, control="positive")


NOTHING = rank1(30, 1500, 0.02)


def test_plants_without_the_protections_show_whether_an_attack_works() -> None:
    hidden = judge([NOTHING, planted(58, UNPROTECTED), planted(1, REPLAYED)], POLICY)
    assert hidden.outcome is Outcome.NOT_DEMONSTRATED
    left = judge([NOTHING, planted(58, UNPROTECTED), planted(40, REPLAYED)], POLICY)
    assert left.outcome is Outcome.NOT_DEMONSTRATED
    dead = judge([NOTHING, planted(1, UNPROTECTED), planted(40, REPLAYED)], POLICY)
    assert dead.outcome is Outcome.INCONCLUSIVE and "missed its planted leak" in dead.reason
    assert judge([NOTHING, planted(58, REPLAYED)], POLICY).outcome is Outcome.NOT_DEMONSTRATED
    assert judge([NOTHING, planted(1, REPLAYED)], POLICY).outcome is Outcome.INCONCLUSIVE
