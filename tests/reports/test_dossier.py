"""The anonymity dossier: every row is answered from the table of questions, or says that no audit answers it."""

import pytest

from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Folded, Paragraph, Table, words
from fedaudit.reports.sections.dossier import EDPB, OUTSIDE, STANDARDS, Dossier
from tests.reports.sample import result


def unfold(audited: AuditResult) -> list[Block]:
    return [
        b for block in Dossier().build(audited) for b in (block.blocks if isinstance(block, Folded) else [block])
    ]


def texts(audited: AuditResult) -> list[Paragraph]:
    return [b for b in unfold(audited) if isinstance(b, Paragraph)]


def rows(audited: AuditResult) -> dict[tuple[str, str], str]:
    found = [[words(c) for c in row] for b in unfold(audited) if isinstance(b, Table) for row in b.rows]
    return {(source, asked): answer for source, asked, answer in found}


def test_every_source_has_rows_and_every_row_an_answer() -> None:
    found = rows(result())
    assert all(found.values())
    for source in (
        "Paragraph 46",
        "Paragraph 55",
        "Paragraph 58",
        "OWASP AISVS 11.2.5",
        "NIST AI RMF, MEASURE 2.10",
    ):
        assert any(s == source for s, _ in found)
    assert any(s.startswith("CNIL") for s, _ in found)
    assert any("EDPS, 5.4.3" in t.text for t in texts(result()))


@pytest.mark.parametrize(
    ("harms", "asked"),
    [
        ((Harm.MEMBERSHIP, Harm.DIFFUSE), "Tests of membership inference"),
        ((Harm.ATTRIBUTE, Harm.CLIENT_FACT), "Tests of attribute inference"),
        ((Harm.RECORD,), "Tests of exfiltration"),
        ((Harm.RECONSTRUCTION,), "Tests of model inversion"),
    ],
)
def test_a_test_that_nobody_ran_is_never_counted(harms: tuple[Harm, ...], asked: str) -> None:
    audited = result()
    audited.questions = [q for q in audited.questions if q.harm not in harms]
    assert rows(audited)["Paragraph 55", asked] == "No message of this run raises the question."


def test_an_answer_counts_the_states_of_the_table() -> None:
    audited = result()
    asked = "Tests of membership inference"
    assert rows(audited)["Paragraph 55", asked] == "3 questions: 1 exposed, 2 open."
    for q in audited.questions:
        q.state = State.OPEN
    assert rows(audited)["Paragraph 55", asked] == "3 questions: 3 open."


def test_what_no_audit_can_answer_is_said_so_whatever_was_measured() -> None:
    said = " ".join(t.text for t in texts(result()) if t.text.startswith(f"*{OUTSIDE}*"))
    outside = [(source, asked) for source, asked, answer in (*EDPB, *STANDARDS) if answer is None]
    assert len(outside) == 8 and all(source in said for source, _ in outside)
    assert "MEASURE 2.11 (fairness and bias are evaluated)" in said
    assert not {source for source, _ in rows(result())} & {"NIST AI RMF, MEASURE 2.11", "EDPS, 5.4.3"}
