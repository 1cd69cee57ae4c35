"""Exports: what code hosts and CI servers read of a result, with the counts and forms that they expect."""

import json
import xml.etree.ElementTree as ET

import pytest

from fedaudit.reports.document import Document
from fedaudit.reports.renderers.junit import Junit
from fedaudit.reports.renderers.markdown import Markdown
from fedaudit.reports.renderers.sarif import Sarif
from fedaudit.reports.result import GateRecord, Outcome, Severity


@pytest.fixture
def gated(document: Document) -> Document:
    """The sample, of whose demonstrated findings the gate fails all but the last, which is waived."""
    ids = [f.id for f in document.result.findings if f.outcome is Outcome.DEMONSTRATED]
    gate = GateRecord(
        outcome="findings",
        sentence="too much | is <b>known</b>",
        fail_on=Severity.LOW,
        failing=ids[:-1],
        waived={ids[-1]: "A. Person, until 2999-01-31: a pilot"},
    )
    return Document(result=document.result.model_copy(update={"gate": gate}), chapters=document.chapters)


def test_sarif_has_a_rule_for_every_result_and_only_values_of_the_standard(gated: Document) -> None:
    log = json.loads(Sarif().render(gated))
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    run, findings = log["runs"][0], gated.result.findings
    rules = run["tool"]["driver"]["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    assert [r["ruleId"] for r in run["results"]] == [f.id for f in findings]
    for found in run["results"]:
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        assert found["kind"] in {"fail", "pass", "open", "notApplicable"} and found["message"]["text"]
        # 3.27.10: where kind is not "fail", level is absent or "none"
        assert found["level"] in ({"error", "warning", "note"} if found["kind"] == "fail" else {"none"})
    suppressed = [r["ruleId"] for r in run["results"] if r["suppressions"]]
    assert gated.result.gate is not None and suppressed == list(gated.result.gate.waived)


def test_junit_counts_what_the_gate_fails_and_what_stays_open(gated: Document) -> None:
    root = ET.fromstring(Junit().render(gated))
    suite, gate = root[0], gated.result.gate
    assert gate is not None and (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == len(gated.result.findings)
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == len(gate.failing) > 0
    open_ends = [f for f in gated.result.findings if f.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILED)]
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == len(open_ends) > 0
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) > 0


def test_markdown_has_a_row_for_every_finding_and_no_markup_of_theirs(gated: Document) -> None:
    text = Markdown().render(gated).decode()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(gated.result.findings)
    assert r"too much \| is \<b\>known\</b\>" in text and "<" not in text.replace(r"\<", "")
    assert "Waived: " in text
