"""Trials of one client depend on each other: every interval asks whom, and widens where clients are unlike."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import fedaudit.attacks
from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import THESE, Judge
from fedaudit.attacks.evaluation.ranking import First, Present
from fedaudit.attacks.stats import INDEPENDENT

RUNS = 400
RAW = {"wilson", "clopper_pearson", "paired_difference", "difference", "t_interval"}


def draw_clustered(
    rng: np.random.Generator, clients: int, each: int, rate: float = 0.13
) -> tuple[np.ndarray, np.ndarray]:
    """Hits of so many trials of each client, whose rates differ, and their clients."""
    rates = rng.beta(4 * rate, 4 * (1 - rate), clients)
    return rng.random((clients, each)).ravel() < np.repeat(rates, each), np.repeat(np.arange(clients), each)


def returns_interval(function: object) -> bool:
    said = str(inspect.signature(function).return_annotation)  # type: ignore[arg-type]
    return any(name in said for name in ("Interval", "Estimate", "tuple[float, float]"))


def test_no_function_that_attacks_have_returns_an_interval_without_asking_for_groups() -> None:
    public = {
        name: f
        for name, f in inspect.getmembers(stats, inspect.isfunction)
        if f.__module__ == stats.__name__ and not name.startswith("_")
    }
    asking = {
        name: inspect.signature(f).parameters
        for name, f in public.items()
        if returns_interval(f) and name not in RAW
    }
    assert {"bound_share", "mean_interval", "auc", "tpr_at_fpr", "residual_risk"} <= set(asking)
    for name, parameters in asking.items():
        assert "groups" in parameters, name
        assert parameters["groups"].default is inspect.Parameter.empty, name


def test_nobody_judges_trials_without_groups() -> None:
    for judge in (Judge.judge_hits, Judge.judge_values, Judge.judge_firsts, Judge.judge_present):
        assert inspect.signature(judge).parameters["groups"].default is inspect.Parameter.empty


def test_no_attack_takes_an_interval_that_does_not_ask_for_groups() -> None:
    """The raw formulas of independent trials are for what has no clients, such as runs that are repeated."""
    root = Path(inspect.getfile(fedaudit.attacks)).parent
    for file in sorted(root.rglob("*.py")):
        if file != Path(inspect.getfile(stats)):
            names = {n.attr for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.Attribute)}
            assert not names & RAW, file


def test_trials_of_few_unlike_clients_are_worth_less_than_as_many_independent_ones() -> None:
    """75 hits in 575 trials of ten clients: 13.0 %, independently 10.4 to 16.1 %, by clients 6.6 to 22.3 %."""
    of = (22, 14, 11, 9, 7, 5, 4, 2, 1, 0)
    sizes = (58, 58, 58, 58, 58, 57, 57, 57, 57, 57)
    hits = np.concatenate([np.arange(n) < k for k, n in zip(of, sizes, strict=True)])
    clients = np.repeat(np.arange(10), sizes)
    alone, grouped = (Judge().bound_share(hits, g) for g in (INDEPENDENT, clients))
    assert hits.mean() == pytest.approx(0.130, abs=5e-4)
    assert alone == pytest.approx((0.104, 0.161), abs=5e-4)
    assert grouped[0] < 0.08 and grouped[1] > 0.21
    e = Judge().judge_hits("rank1", hits, groups=clients, chance=0.1)
    assert e.interval == grouped


@pytest.mark.parametrize("clients", [5, 8, 15])
def test_grouped_hits_cover_the_true_rate_and_independent_ones_do_not(clients: int) -> None:
    rng = np.random.default_rng(clients)
    missed = {"clients": 0, "independent": 0}
    for _ in range(RUNS):
        hits, groups = draw_clustered(rng, clients, 40)
        for name, of in (("clients", groups), ("independent", INDEPENDENT)):
            low, high = Judge().bound_share(hits, of)
            missed[name] += not low <= 0.13 <= high
    assert missed["clients"] / RUNS <= 0.1 < 0.25 < missed["independent"] / RUNS


def test_one_trial_a_client_is_an_independent_trial() -> None:
    hits = np.arange(20) < 7
    expected = stats.clopper_pearson(7, 20)
    assert stats.bound_share(hits, np.arange(20)) == expected == stats.bound_share(hits, INDEPENDENT)


def test_of_less_than_five_clients_an_interval_is_about_these_alone_and_says_so() -> None:
    hits = np.arange(20) < 15
    e = Judge(note="x").judge_hits(
        "rank1", hits, {"other": hits[:4]}, groups={"": np.arange(20) % 4, "other": [0] * 4}
    )
    assert e.interval == pytest.approx(stats.clopper_pearson(15, 20)) and THESE in e.note
    assert e.baselines[0].interval == pytest.approx(stats.clopper_pearson(4, 4))
    assert THESE not in Judge().judge_hits("rank1", hits, groups=INDEPENDENT).note
    assert THESE not in Judge().judge_hits("rank1", hits, groups=np.arange(20) % 5).note


def test_means_and_firsts_and_what_stands_in_a_message_go_by_client() -> None:
    rng = np.random.default_rng(0)
    clients = np.repeat(np.arange(6), 30)
    values = np.repeat(rng.normal(size=6), 30) + 0.01 * rng.normal(size=180)
    grouped, alone = (
        Judge().judge_values("psnr", values, {}, rng, groups=g).interval for g in (clients, INDEPENDENT)
    )
    assert grouped and alone and grouped[1] - grouped[0] > 3 * (alone[1] - alone[0])
    firsts = [First(float(c % 2), 0.5) for c in clients]
    (first,) = Judge().judge_firsts(firsts, [], "another", groups=clients)
    (single,) = Judge().judge_firsts(firsts, [], "another", groups=INDEPENDENT)
    assert first.interval and single.interval and first.interval[0] < single.interval[0] - 0.1
    present = [Present(bool(c % 2), False) for c in clients]
    e, o = (Judge(note="messages").judge_present(present, groups=g) for g in (clients, INDEPENDENT))
    assert e.interval and o.interval and e.interval[0] < o.interval[0]
