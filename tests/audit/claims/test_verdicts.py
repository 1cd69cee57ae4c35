"""Verdicts: a claim is refuted from below only, holds from above only, and every assumption has a status."""

import pytest

from fedaudit.audit.claims.scores import rescore
from fedaudit.reports.result import ClaimOutcome, ClaimRecord, Severity
from tests.audit.claims.made import made, of, upper

HOLDS, REFUTED, UNDECIDED = ClaimOutcome.HOLDS, ClaimOutcome.REFUTED, ClaimOutcome.UNDECIDED
POISSON = {"noise": 2.0, "sensitivity": 1.0, "sampling": "poisson", "rate": 0.01, "releases": 100}


def status(claim: ClaimRecord, text: str) -> str:
    return next(c.status for c in claim.conditions if c.text.startswith(text))


def test_a_claim_that_its_noise_keeps_holds_and_a_tighter_one_is_refuted_with_its_number() -> None:
    found = rescore(made())
    assert found.outcome is HOLDS and found.severity is Severity.NONE and upper(found) <= 1.5
    assert not any(c.status == "contradicted" for c in found.conditions)
    tighter = rescore(made(promise={"epsilon": 0.3, "delta": 1e-5}))
    assert tighter.outcome is REFUTED and tighter.severity is Severity.HIGH
    assert "at least 1.19 by closed form" in tighter.verdict and tighter.lower > 0.3


def test_a_claim_with_sampling_needs_no_unsampled_setting() -> None:
    found = rescore(made(**of(0.5, **POISSON)))
    assert found.outcome is HOLDS and 0.1 < upper(found) < 0.5
    assert status(found, "Each unit takes part by an independent coin") == "assumed"
    unsampled = {"name": "seen", "role": "other", "noise": 1.0, "sensitivity": 1.0}
    beside = made(**of(0.5, **POISSON) | {"settings": [*of(1, **POISSON)["settings"], unsampled]})
    assert rescore(beside).outcome is HOLDS


@pytest.mark.nightly
@pytest.mark.parametrize(("rate", "count", "promised"), [(0.1, 100, 8.0), (0.01, 1000, 2.5)])
def test_a_fixed_number_keeps_no_claim_of_zeroed_out_clients_that_another_client_s_opposite_breaks(
    rate: float, count: int, promised: float
) -> None:
    fixed = {"noise": 1.0, "sensitivity": 1.0, "sampling": "fixed_without_replacement", "rate": rate}
    found = rescore(made(adjacency="zero_out", releases={"all": count}, **of(promised, **fixed)))
    assert found.outcome is REFUTED and "PLD, optimistic grid" in found.verdict


def test_a_contradicted_assumption_refutes_only_with_a_setting_that_shows_it() -> None:
    seen = {"name": "participation is seen", "role": "actual", "noise": 2.0, "sensitivity": 1.0, "releases": 100}
    told = made(**of(0.5, **POISSON) | {"settings": [*of(1, **POISSON)["settings"], seen]})
    found = rescore(told)
    assert found.outcome is REFUTED and status(found, "Each unit takes part") == "contradicted"
    condition = {"text": "Clips are data-independent", "status": "contradicted", "because": "medians"}
    only = rescore(made(conditions=[condition], **of(0.5, **POISSON)))
    assert only.outcome is UNDECIDED and "clips are data-independent" in only.verdict
    harmless = rescore(made(conditions=[condition]))  # the actual setting says what holds, and it suffices
    assert harmless.outcome is HOLDS and status(harmless, "Clips") == "contradicted"


def test_an_upper_bound_above_the_claim_refutes_nothing() -> None:
    loose = {"noise": 10.0, "sensitivity": 1.0, "attained": False}
    assert rescore(made(**of(0.3, 1e-5, **loose))).outcome is UNDECIDED
    stated = rescore(made(**of(5.0, epsilon=1.0)))  # ten releases of some 1-private mechanism
    assert stated.outcome is UNDECIDED and stated.lower == 0.0
    shuffled = {"noise": 1.0, "sensitivity": 1.0, "sampling": "shuffle", "batches": 100, "releases": 1000}
    batches = rescore(made(**of(2.0, **shuffled)))
    assert batches.outcome is UNDECIDED and "shuffling is missing" in batches.verdict
    assert 0 < batches.lower < 2.0 < upper(batches)
    unpublished = rescore(made(**of(2.0, noise=None, sensitivity=1.0)))
    assert unpublished.outcome is UNDECIDED and "not published" in unpublished.verdict


def test_a_delta_of_its_own_in_a_setting_decides_nothing() -> None:
    tighter = {"name": "at 1e-9", "role": "actual", "noise": 10.0, "sensitivity": 1.0, "delta": 1e-9}
    found = rescore(made(promise={"epsilon": 1.3, "delta": 1e-5}, settings=[tighter]))
    assert found.rows[0].epsilon[0] > 1.3 and found.outcome is HOLDS


def test_a_measurement_refutes_and_is_critical() -> None:
    reached = {"name": "replayed", "role": "measured", "noise": 10.0, "sensitivity": 20.0}
    settings = [*of(1, noise=10.0, sensitivity=1.0)["settings"], reached]
    found = rescore(made(promise={"epsilon": 1.5, "delta": 1e-5}, settings=settings))
    assert found.outcome is REFUTED and found.severity is Severity.CRITICAL
    assert status(found, "The sensitivity is enforced") == "contradicted"


def test_no_noise_refutes_a_promise_of_some_epsilon_and_decides_nothing_without_one() -> None:
    clear = [{"name": "in clear", "role": "actual", "noise": 0, "delta": 1e-5}]
    some = rescore(made(promise={"delta": 1e-5, "finite": True}, settings=clear))
    assert some.outcome is REFUTED and "nothing limits the loss" in some.verdict
    none = rescore(made(promise={}, settings=clear))
    assert none.outcome is UNDECIDED and "no epsilon is stated" in none.verdict
    gaussian = rescore(made(promise={"epsilon": 100, "delta": 0}))
    assert gaussian.outcome is REFUTED and "at delta 0" in gaussian.verdict


def test_what_a_theorem_says_wrongly_is_refuted_under_its_own_assumptions() -> None:
    found = rescore(
        made(theorem="classical", releases={"1": 1}, **of(60, 0.01, noise=0.0517915, sensitivity=1.0))
    )
    assert found.outcome is REFUTED and status(found, "Epsilon is below 1") == "contradicted"


def test_the_choice_among_runs_is_counted_or_contradicted() -> None:
    plain = {"epsilon": 1.0, "mechanism": "randomized_response", "releases": 1}
    best = {"name": "the best", "role": "actual", **plain, "tuned": {"mean": 10}}
    found = rescore(made(**of(2.0, **plain) | {"settings": [*of(2.0, **plain)["settings"], best]}))
    assert status(found, "The choice among several runs is counted") == "contradicted"
    assert upper(found) == pytest.approx(3.0) and 0.99 < found.lower <= 1.0
    assert found.outcome is UNDECIDED


def test_batches_of_uneven_sizes_are_one_release_of_each_unit_an_epoch() -> None:
    uneven = {"noise": 2.0, "sensitivity": 1.0, "sampling": "shuffle", "batches": 2, "releases": 20}
    found = rescore(
        made(unit="record", **of(8.0, **uneven))
    )  # 70 of 100 examples, then 30: "at least 8.98" was said
    assert found.outcome is HOLDS and upper(found) == pytest.approx(7.512, rel=1e-3)


def test_what_a_hospital_platform_promises_holds_for_a_removed_site_and_not_for_a_replaced_one() -> None:
    """KatherLab/MediSwarm issue 593: a swarm of fixed sites, each of which always sends."""
    stated = {"noise": 2.4, "sensitivity": 1.0, "adjacency": "add_or_remove_one", "releases": 20}
    removed, replaced = (
        rescore(made(adjacency=towards, **of(10.0, **stated))) for towards in ("add_or_remove_one", "replace_one")
    )
    assert removed.outcome is HOLDS and "at most 9.17" in removed.verdict
    assert replaced.outcome is REFUTED and 22.1 < replaced.lower < upper(replaced) * (1 + 1e-6) < 22.2


def test_a_wrapper_whose_noise_does_not_know_its_clip_costs_millions() -> None:
    """londonaicentre/FLIP pull request 833: clip 1.0, standard deviation 4.845e-05."""
    logged = {"noise": 4.845e-05, "sensitivity": 1.0, "releases": 1}
    found = rescore(made(**of(10.0, **logged)))
    assert found.outcome is REFUTED and found.lower >= 2.13e8


EXTREMES: list[dict[str, object]] = [
    {"sampling": "poisson", "rate": 0.1, "noise": 1e300},
    {"sampling": "poisson", "rate": 0.1, "noise": 1e-300},
    {"sampling": "fixed_without_replacement", "rate": 0.1, "noise": 1e300},
    {"sampling": "fixed_without_replacement", "rate": 0.1, "noise": 1e-300},
    {"tuned": {"mean": 10}, "noise": 1e300, "mechanism": "randomized_response"},
    {"mechanism": "laplace", "noise": 1e-300},
    {"mechanism": "discrete_laplace", "noise": 1e300},
    {"mechanism": "randomized_response", "noise": 1e-300},
]


@pytest.mark.parametrize("setting", EXTREMES)
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-5, 1.0])
def test_extreme_numbers_end_in_a_verdict(setting: dict[str, object], delta: float) -> None:
    found = rescore(made(**of(3.0, delta, **{"noise": 1.0, "sensitivity": 1.0} | setting)))
    assert found.lower <= upper(found) or found.outcome is UNDECIDED
    assert "not published" not in found.verdict
    if delta == 1:
        assert found.outcome is HOLDS
    elif str(setting["noise"]) == "1e-300":
        assert found.outcome is not HOLDS


SAMPLED: list[dict[str, object]] = [
    {"sampling": "poisson", "rate": 0.1},
    {"sampling": "fixed_without_replacement", "rate": 0.1},
    {"sampling": "shuffle", "batches": 10},
    {"tree": 100},
]


@pytest.mark.parametrize("setting", SAMPLED)
@pytest.mark.parametrize("adjacency", ["add_or_remove_one", "zero_out", "replace_one"])
def test_gaussian_noise_keeps_no_claim_at_delta_0(setting: dict[str, object], adjacency: str) -> None:
    found = rescore(made(adjacency=adjacency, **of(3.0, 0.0, noise=1.0, sensitivity=1.0, **setting)))
    assert found.outcome is REFUTED and "no finite epsilon at delta 0" in found.verdict
    loose = {"noise": 1.0, "sensitivity": 1.0, "attained": False} | setting
    open_ = rescore(made(adjacency=adjacency, **of(3.0, 0.0, **loose)))
    assert open_.outcome is UNDECIDED and "state a delta above 0" in open_.verdict
