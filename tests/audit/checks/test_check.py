"""A check that comes to no end ends no audit: what it saw stands, and why it saw no more is said."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedaudit.audit.checks._check import SERVER, Check, Seen
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import DeadPart, Death
from fedaudit.reports.result import Finding, Severity

SEEN = Finding(id="a", title="t", summary="s", severity=Severity.LOW, threat=SERVER)


class Failing(Check):
    """Failing: it sees one thing and then raises."""

    error: Exception

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield SEEN
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UserError("Net cannot compute [1, 64]"), "Net cannot compute [1, 64]"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_what_was_seen_stands_and_what_was_not_is_declared(error: Exception, words: str) -> None:
    check = Failing()
    check.error = error
    checked = check.check(None, None)
    assert checked.results == [SEEN]
    assert len(checked.declared) == 1 and "could not be carried out" in checked.declared[0]
    assert words in checked.declared[0]


def test_a_part_that_dies_ends_the_phase_which_the_same_command_makes_again() -> None:
    check = Failing()
    check.error = DeadPart(Death(-9))
    with pytest.raises(DeadPart):
        check.check(None, None)


class PasswordsInClear(Check):
    """Passwords in clear: a check of one's own, as a file of one's own has it."""

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield Finding(
            id="passwords-sent",
            title="Clients send passwords in clear",
            summary="All ten do.",
            severity=Severity.HIGH,
            reason="Whoever reads them can act for these people.",
            artifacts=["local_model"],
            does_not_show="who reads them",
            remedy="send none",
        )


def test_a_check_of_ones_own_says_how_bad_it_is() -> None:
    [seen] = PasswordsInClear().check(None, None).results
    finding = load_policy("default").rate(seen)
    assert (finding.severity, finding.title) == (Severity.HIGH, "Clients send passwords in clear")
    assert finding.is_demonstrated and finding.reason == "Whoever reads them can act for these people."
