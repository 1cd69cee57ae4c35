"""What an import found wrong, or left open, as findings, and what that makes of the findings of attacks."""

import pytest

from fedaudit.audit.importing.doubts import (
    explain_other_training,
    explain_unknown_owners,
    list_doubts,
    qualify_finding,
)
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.scene import Answers
from fedaudit.fl.kinds import Kind
from fedaudit.reports.imported import CheckedStatement, ImportRecord
from fedaudit.reports.questions import State
from fedaudit.reports.result import Finding, Outcome, Severity
from tests.audit.verdict.scenes import ALONE, answer, attempt, make_people, make_uploads


def imported(*checks: tuple[str, str], truth: int = 4, clients: int = 4) -> ImportRecord:
    told = [CheckedStatement(id=i, title=i.capitalize(), status=s, text=f"{i} is {s}") for i, s in checks]
    return ImportRecord.model_construct(checks=told, truth=truth, clients=clients, canaries=[])


def attacked(severity: Severity = Severity.HIGH) -> Finding:
    return Finding(
        id="loss_threshold",
        title="The adversary learns who took part",
        source="attack",
        outcome=Outcome.RAN,
        severity=severity,
        summary="Ran.",
        reason="so many are hit",
        at_least=0 if severity is Severity.NONE else 9,
        people=20,
    )


@pytest.mark.parametrize(
    ("check", "severity"),
    [
        (("central", "contradicted"), Severity.CRITICAL),
        (("protection-0", "contradicted"), Severity.CRITICAL),
        (("ledger", "contradicted"), Severity.CRITICAL),
        (("training", "contradicted"), Severity.NONE),
        (("who", "open"), Severity.NONE),
    ],
)
def test_a_statement_of_a_protection_that_messages_contradict_is_critical(
    check: tuple[str, str], severity: Severity
) -> None:
    [found] = map(load_policy("default").rate, list_doubts(imported(check)))
    assert found.id == f"import-{check[0]}" and found.severity is severity


def test_what_holds_or_was_only_declared_is_no_finding() -> None:
    assert list_doubts(imported(("central", "declared"), ("training", "holds"), ("fit", "open"))) == []


@pytest.mark.parametrize("status", ["open", "contradicted"])
def test_where_nobody_knows_who_holds_what_it_is_said(status: str) -> None:
    record = imported(("who", status))
    assert explain_unknown_owners(record).endswith(f"who is {status}")
    found = qualify_finding(attacked(), record)
    assert found.reason.startswith("It is not established which client holds which examples")


def test_where_that_is_known_a_finding_stays_as_it_is() -> None:
    assert qualify_finding(attacked(), imported(("who", "holds"))) == attacked()
    assert qualify_finding(attacked(), None) == attacked()
    assert explain_unknown_owners(imported(("who", "declared"))) == explain_unknown_owners(None) == ""


def test_hitting_few_says_nothing_where_a_statement_on_training_is_contradicted() -> None:
    for id, status, is_doubt in (("training", "contradicted", True), ("fit", "contradicted", True),
                                 ("training", "holds", False), ("central", "contradicted", False)):  # fmt: skip
        assert bool(explain_other_training(imported((id, status)))) is is_doubt
    people = make_people()
    played = attempt("played_message", {Kind.LOCAL_MODEL: range(3)}, people=people)
    given = Answers(attempts=[played], shipped=ALONE, doubt="what was stated of training is contradicted")
    q = answer(make_uploads(), [played], given)["membership.server"]
    assert (q.state, q.at_most) == (State.OPEN, None) and "training is contradicted" in q.why


def test_of_how_many_clients_the_examples_were_given_is_said() -> None:
    found = qualify_finding(attacked(), imported(("who", "declared"), truth=3))
    assert found.summary == "Ran. Measured on 3 of 4 clients, whose examples were given."
