"""A waiver accepts one finding, or one open question, of one run, until a day."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.attestation.reviewer_files import apply_waivers, read_terms
from fedaudit.audit.cli.ending import explain_finding
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.policy import Terms, accept_cells, load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult
from tests.reports.sample import make_question, result

RUN, TODAY = "a" * 64, date(2026, 11, 1)
QUESTION = "reconstruction.public"


def audit() -> AuditResult:
    made = result()
    made.findings, made.bounds, made.decision = [], [], None
    made.rule_questions = []
    made.questions = [
        make_question(Harm.MEMBERSHIP, "server", State.CLEAR, "w", at_most=3, people=100),
        make_question(Harm.RECONSTRUCTION, "public", State.OPEN, "no attack was tried"),
    ]
    return made


def waive(tmp_path: Path, **changes: Any) -> Any:
    fields = {"run": RUN, "question": QUESTION, "reason": "No attack is published.", "owner": "A. Person"}
    fields |= {"expires": "2027-01-31"} | changes
    rows = "\n".join(f"    {k}: {v}" for k, v in fields.items() if v)
    (tmp_path / "w.yaml").write_text(f"waivers:\n  -\n{rows}\n")
    return read_terms(tmp_path / "w.yaml").waivers


def test_an_open_question_that_is_accepted_by_name_is_a_condition(tmp_path: Path) -> None:
    audited, policy = audit(), load_policy("default")
    assert decide(audited, policy).word is Word.CANNOT_TELL
    acceptance = apply_waivers(waive(tmp_path), audited, RUN, TODAY)
    terms = Terms(accepted=acceptance.accepted)
    assert decide(audited, policy, terms).word is Word.WITH_CONDITIONS
    accepted = accept_cells(audited.questions, terms)[1]
    assert accepted.accepted == "A. Person, until 2027-01-31: No attack is published." and not accepted.is_open


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [({"expires": "2026-10-31"}, "it expired on 2026-10-31"), ({"run": "b" * 64}, "it is about another run")],
)
def test_a_waiver_of_another_run_or_of_last_month_does_not_count(
    changes: dict[str, Any], phrase: str, tmp_path: Path
) -> None:
    acceptance = apply_waivers(waive(tmp_path, **changes), audit(), RUN, TODAY)
    assert not acceptance.accepted and phrase in acceptance.refused[0] and QUESTION in acceptance.refused[0]


def test_a_question_that_is_answered_needs_no_waiver(tmp_path: Path) -> None:
    acceptance = apply_waivers(waive(tmp_path, question="membership.server"), audit(), RUN, TODAY)
    assert not acceptance.accepted and not acceptance.refused


@pytest.mark.parametrize(
    "changes", [{"question": ""}, {"finding": "upcnn"}, {"question": "", "finding": "upcnn"}]
)
def test_a_waiver_is_about_one_thing(changes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must have finding, severity and digest, or question in their place"):
        waive(tmp_path, **changes)


def test_explain_prints_what_a_waiver_of_a_question_names() -> None:
    said = "\n".join(explain_finding(audit(), QUESTION, RUN))
    assert "Reconstruction by whoever gets the model (open, required)" in said
    assert f"  run: {RUN}\n  question: {QUESTION}" in said
