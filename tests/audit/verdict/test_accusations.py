"""Accusations of membership are right as often as Bayes says."""

import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.verdict.findings import compute_accusations


def tpr(value: float) -> Evidence:
    return Evidence(
        measure="tpr_at_fpr_0.01", value=value, unit="fraction", trials=500, interval=(value / 2, value)
    )


@pytest.mark.parametrize(("prior", "right"), [(0.5, 0.25 / 0.26), (0.01, 0.0025 / (0.0025 + 0.0099))])
def test_an_accusation_is_right_as_bayes_says(prior: float, right: float) -> None:
    auc = Evidence(measure="auc", value=0.9, unit="fraction", trials=500, interval=(0.8, 0.95))
    (accusation,) = compute_accusations([tpr(0.25), auc], prior)
    assert accusation.right == pytest.approx(right)
    assert accusation.interval is not None and accusation.interval[1] == pytest.approx(right)
    assert accusation.interval[0] < right


def test_without_a_declared_prior_nothing_is_said() -> None:
    assert compute_accusations([tpr(0.25)], None) == []
