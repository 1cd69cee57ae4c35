"""Noise that was drawn by another line than the ledger has: declared where it costs no more, or else refuted."""

from typing import Any

import pytest

from tests.audit.noise_audit.systems import CENTRAL, check, judge

OTHER = "tests.audit.noise_audit.other_draws:"


def protect(name: str, **settings: Any) -> dict[str, Any]:
    return {"method": {"name": "fedavg", "rounds": 2}, "protections": [{"name": OTHER + name, **settings}]}


def test_noise_of_another_scale_that_comes_to_the_same_is_declared() -> None:
    result = check("server", **protect("OfUnitScale"))
    assert result.status == "declared" and result.ratio == pytest.approx(1.0, abs=5e-4)
    assert "(gaussian noise of 4 over 2 where that has gaussian noise of 2 over 1)" in result.reason


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OfLessNoise", "that is less noise for what it hides, 1 time where the ledger counts 1"),
        ("DrawnTwice", "it is drawn 2 times by the line in the ledger, which counts 1"),
        ("OfAnotherUnit", "which says unit client; it is record"),
    ],
)
def test_noise_that_costs_more_than_its_line_is_refuted_with_what_it_is(name: str, said: str) -> None:
    result = check("server", **protect(name))
    assert result.status == "refuted" and said in result.reason, result.reason


def test_noise_of_the_run_s_source_without_its_line_is_not_called_the_team_s_own() -> None:
    settings = {k: v for k, v in CENTRAL.items() if k != "name"}
    result = check("another client", **protect("LineReplaced", **settings))
    assert result.status == "declared" and "was drawn from the run's source, but no line" in result.reason


def test_a_draw_that_a_line_counts_on_and_the_run_does_not_make_is_said_and_not_credited() -> None:
    everybody = {"federation": {"availability": "full"}}
    drawn, plain = (judge("server", **protect(n), **everybody) for n in ("CountsOnADraw", "OfUnitScale"))
    assert (
        "CountsOnADraw counts on clients drawn at rate 0.2, and the run does not draw them so" in drawn.uncredited
    )
    assert drawn.epsilon == plain.epsilon and not plain.uncredited


def test_a_draw_that_the_run_makes_is_credited() -> None:
    coins = {"federation": {"availability": {"name": "bernoulli", "p": 0.2}, "empty_round": "skip"}}
    assert not judge("another client", protections=[CENTRAL], **coins).uncredited
