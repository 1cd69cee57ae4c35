"""Severity of people who are hit and of answers that are lost, by the lower limit."""

import pytest

from fedaudit.audit.verdict.people import rate
from fedaudit.reports.result import Severity


@pytest.mark.parametrize(
    ("at_least", "severity"),
    [
        (0, Severity.NONE),
        (-3, Severity.NONE),
        (1, Severity.LOW),
        (35, Severity.LOW),
        (36, Severity.MEDIUM),
        (105, Severity.MEDIUM),
        (106, Severity.HIGH),
        (350, Severity.HIGH),
        (351, Severity.CRITICAL),
    ],
)
def test_severity_follows_from_the_share_that_is_hit_at_least(at_least: int, severity: Severity) -> None:
    assert rate(at_least, 700, 0.05) is severity


def test_one_person_is_critical_where_nobody_is_tolerable() -> None:
    assert rate(1, 700, 0) is Severity.CRITICAL
    assert rate(0, 700, 0) is Severity.NONE


def test_what_is_mild_is_of_medium_severity_at_most() -> None:
    assert rate(700, 700, 0.05, is_mild=True) is Severity.MEDIUM
    assert rate(35, 700, 0.05, is_mild=True) is Severity.LOW


def test_a_share_of_answers_is_rated_as_people_are() -> None:
    assert rate(0.15, 1, 0.05) is Severity.MEDIUM
    assert rate(0.81, 1, 0.05) is Severity.CRITICAL
