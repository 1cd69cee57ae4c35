"""FreezeFL's untrained round lengths against what its formula gives by hand."""

import numpy as np
import pytest

from fedaudit.audit.claims.round_lengths import TimedFederation, mark_deviation

EXCHANGE = 2 * 4_377_534 * 4 / 2**20 / 100  # of the whole network, at capability 1
NARROWEST = 2 * 286_110 * 4 / 2**20 / 100


@pytest.mark.parametrize(("law", "largest"), [("uniform", 288), ("normal", 302)])
def test_a_round_is_as_long_as_the_largest_client_of_the_slowest_class_takes(law: str, largest: int) -> None:
    """13.5 of the slowest (capability .5) are drawn on average; `largest` of their sizes is the mean one."""
    federation = TimedFederation(law, "epochs")
    assert federation.fedavg(3) == pytest.approx((EXCHANGE + 3 * 1.93564e-4 * largest / 0.4) / 0.5, rel=0.015)
    assert federation.fjord() == pytest.approx((NARROWEST + 3 * 2.02e-4 * largest / 0.4) / 0.5, rel=0.015)


def test_a_length_is_marked_where_it_is_more_than_three_percent_outside_what_is_printed() -> None:
    assert [mark_deviation(x, 1.04, 1.07) for x in (1.0, 1.01, 1.1, 1.11)] == ["1.00*", "1.01 ", "1.10 ", "1.11*"]


@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_a_client_that_nobody_chose_is_of_the_slowest_class_and_a_round_as_long_as_it_takes(law: str) -> None:
    federation = TimedFederation(law, "epochs")
    slow = np.flatnonzero(federation.times.capability == 0.5)[54:134]
    mean = EXCHANGE / 0.5 + float(
        np.mean(3 * federation.times.workload.profile[0] * federation.n[slow] / 0.4 / 0.5)
    )
    found = federation.rbcs_f(stray=True)
    assert mean <= found <= 1.05 * mean and found == pytest.approx(1.21, rel=0.02)
    assert federation.rbcs_f() < 0.5
