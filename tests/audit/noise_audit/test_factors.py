"""How far a line lets clean values move, where a client takes part in some rounds alone."""

import pytest

from fedaudit.audit.plays.factors import allow_client, allow_replaced_client, allow_when_drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, Sampling


def line(round: int, sampling: Sampling, rate: float) -> Release:
    return Release(
        round=round,
        kind=Kind.GLOBAL_MODEL,
        sender="client/*",
        observers=("client",),
        mechanism="gaussian",
        noise_std=1.0,
        sensitivity=1.0,
        sampling=sampling,
        sample_rate=rate,
    )


@pytest.mark.parametrize("sampling", ["poisson", "fixed_without_replacement"])
def test_a_line_that_credits_sampling_shows_nothing_of_a_client_that_was_not_drawn(sampling: Sampling) -> None:
    allowed = allow_when_drawn({1, 3}, allow_replaced_client)
    assert [allowed(line(t, sampling, 0.5)) for t in range(4)] == [0.0, 2.0, 0.0, 2.0]


@pytest.mark.parametrize(("sampling", "rate"), [("none", 1.0), ("none", 0.5), ("poisson", 1.0)])
def test_one_that_credits_none_may_show_it_in_any_round(sampling: Sampling, rate: float) -> None:
    allowed = allow_when_drawn({1}, allow_client)
    assert [allowed(line(t, sampling, rate)) for t in range(2)] == [1.0, 1.0]
