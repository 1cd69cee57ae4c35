"""Draws that belong to places: a record less leaves them to others, which is no move of the release."""

from typing import Any

import pytest

from tests.audit.noise_audit.systems import check

BY_HAND = "tests.audit.noise_audit.steps_by_hand:"


def steps(name: str) -> dict[str, Any]:
    return {"method": {"name": BY_HAND + name, "rounds": 2}, "protections": [{"name": f"{BY_HAND}StepsLedger"}]}


@pytest.mark.parametrize(
    ("name", "observer"), [("StepsByPlace", "another client"), ("StepsByPlaceAnew", "server")]
)
def test_coins_by_place_are_no_counterexample_and_leave_a_bound_declared(name: str, observer: str) -> None:
    result = check(observer, "record", **steps(name))
    assert result.status == "declared" and "by a record's place" in result.reason, result.reason


def test_coins_by_record_are_compared() -> None:
    result = check("server", "record", **steps("StepsByRecord"))
    assert result.status != "refuted" and result.ratio == pytest.approx(1.0, abs=5e-4), result.reason


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("UnboundedByPlace", 10.0),
        ("UnboundedByPlaceAnew", 10.0),
        ("TwiceByRecord", 1.99),
        ("TwiceByPlaceAnew", 1.99),
    ],
)
def test_what_moves_too_far_whoever_is_drawn_is_refuted(name: str, least: float) -> None:
    result = check("server", "record", **steps(name))
    assert result.status == "refuted" and result.ratio is not None and result.ratio > least, result.reason


def test_what_no_draw_moves_is_refuted_beside_draws_by_place() -> None:
    result = check("server", "record", **steps("TellsItsSize"))
    assert result.status == "refuted" and "no line of the ledger allows it" in result.reason, result.reason
