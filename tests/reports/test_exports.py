"""Exports: what code hosts and CI servers read of a result, with the counts and forms that they expect."""

import json
import xml.etree.ElementTree as ET

import pytest

from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.decision import Word
from fedaudit.reports.document import Document
from fedaudit.reports.renderers.json import Json
from fedaudit.reports.renderers.junit import Junit
from fedaudit.reports.renderers.markdown import Markdown
from fedaudit.reports.renderers.sarif import Sarif
from fedaudit.reports.result import Outcome


def decided(document: Document, word: Word) -> Document:
    """The sample under a verdict: of its demonstrated findings all but the last forbid, and that is accepted."""
    ids = [f.id for f in document.result.findings if f.is_demonstrated]
    before = document.result.decision
    assert before is not None
    decision = before.model_copy(
        update={
            "word": word,
            "sentence": "too much | is <b>known</b>",
            "page": before.page.model_copy(update={"sentence": "too much | is <b>known</b>"}),
            "bar": "low",
            "failing": ids[:-1],
            "accepted": {ids[-1]: "A. Person, until 2999-01-31: a pilot"},
        }
    )
    return Document(result=document.result.model_copy(update={"decision": decision}), chapters=document.chapters)


@pytest.fixture
def gated(document: Document) -> Document:
    return decided(document, Word.NOT_READY)


@pytest.mark.parametrize("word", list(Word))
def test_every_export_speaks_the_word_of_the_verdict(document: Document, word: Word) -> None:
    made = decided(document, word)
    (run,) = json.loads(Sarif().render(made))["runs"]
    assert run["invocations"][0]["exitCode"] == word.exit_code
    assert run["invocations"][0]["exitCodeDescription"].startswith(word.words)
    assert f"**{word.words}**. " in Markdown().render(made).decode()
    (case,) = ET.fromstring(Junit().render(made)).findall("testsuite/testcase[@classname='fedaudit.verdict']")
    assert case.get("name") == word.words
    assert [e.tag for e in case] == {0: [], 1: ["failure"], 3: ["error"]}[word.exit_code]
    assert json.loads(Json().render(made))["decision"]["word"] == word


def test_sarif_has_a_rule_for_every_result_and_only_values_of_the_standard(gated: Document) -> None:
    log = json.loads(Sarif().render(gated))
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    run, findings = log["runs"][0], gated.result.findings
    rules = run["tool"]["driver"]["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    assert [r["ruleId"] for r in run["results"]] == [f.id for f in findings]
    for found in run["results"]:
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        assert found["kind"] in {"fail", "informational", "open", "notApplicable"} and found["message"]["text"]
        # 3.27.10: where kind is not "fail", level is absent or "none"
        assert found["level"] in ({"error", "warning", "note"} if found["kind"] == "fail" else {"none"})
    suppressed = [r["ruleId"] for r in run["results"] if r["suppressions"]]
    assert gated.result.decision is not None and suppressed == list(gated.result.decision.accepted)


def test_junit_counts_what_forbids_a_deployment_and_what_stays_open(gated: Document) -> None:
    root = ET.fromstring(Junit().render(gated))
    suite, decision = root[0], gated.result.decision
    assert decision is not None and (root.tag, suite.tag) == ("testsuites", "testsuite")
    needed = [c for c in gated.result.cells if c.required]
    cases = 1 + len(gated.result.findings) + len(needed)
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == cases
    exposed = [c for c in needed if c.is_exposed]
    failures = 1 + len(decision.failing) + len(exposed)
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == failures
    assert decision.failing and exposed
    left = [q for q in needed if q.is_open]
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == len(left) > 0
    looked_at_nothing = [f for f in gated.result.findings if f.outcome is not Outcome.RAN]
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == len(looked_at_nothing) > 0


def test_junit_fails_no_question_that_is_mild_or_accepted(document: Document) -> None:
    exposed = next(q for q in document.result.questions if q.is_exposed)
    for change in ({"harm": Harm.DIFFUSE}, {"accepted": "A. Person"}, {"required": False}):
        result = document.result.model_copy(
            update={"questions": [exposed.model_copy(update=change)], "rule_questions": [], "decision": None}
        )
        root = ET.fromstring(Junit().render(Document(result=result, chapters=document.chapters)))
        assert root.findall("testsuite/testcase/failure") == [], change


def test_markdown_has_a_row_for_every_harm_reader_and_finding_and_no_markup_of_theirs(gated: Document) -> None:
    text = Markdown().render(gated).decode()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    page = gated.result.verdict.page
    harms, readers = [*page.harms, *page.bounded], {q.observer for q in gated.result.questions}
    assert len(rows) == 3 + len(harms) + len(readers) + len(gated.result.findings)
    assert r"too much \| is \<b\>known\</b\>" in text and "<" not in text.replace(r"\<", "")
    assert "Accepted: " in text
