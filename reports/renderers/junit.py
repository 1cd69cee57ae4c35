"""JUnit XML: a test case for each finding and required question and one for the verdict, as CI servers read it.

A required question that is exposed is a failure, and so is what was seen or proved and forbids a deployment;
one that stays open is an error. The form is that of Jenkins' xUnit plugin (junit-10.xsd).
"""

import re
import xml.etree.ElementTree as ET
from typing import ClassVar

from fedaudit.reports.decision import Word
from fedaudit.reports.document import Document
from fedaudit.reports.questions import Cell, Question
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import AuditResult, Finding, Outcome

VERDICTS = {Word.NOT_READY: "failure", Word.CANNOT_TELL: "error"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2


class Junit(Renderer):
    suffix: ClassVar[str] = "xml"

    def render(self, document: Document) -> bytes:
        result = document.result
        suite = ET.Element("testsuite", name=_clean(result.title), timestamp=result.created[:19])
        tally = {"failure": 0, "error": 0, "skipped": 0}
        for finding in (f for f in result.findings if not f.part_of):  # one leak is one test
            case = ET.SubElement(
                suite,
                "testcase",
                name=_clean(finding.title),
                classname=f"fedaudit.{finding.source}.{finding.id}",
                time=f"{finding.seconds:.3f}",
            )
            if tag := _tag(finding, result):
                tally[tag] += 1
                ET.SubElement(case, tag, message=_clean(finding.title)).text = _clean(finding.account)
        for cell in (c for c in result.cells if c.required):
            case = ET.SubElement(suite, "testcase", name=_clean(cell.id), classname="fedaudit.question")
            if tag := _tag_question(cell):
                tally[tag] += 1
                ET.SubElement(case, tag, message=_clean(cell.state.value)).text = _clean(cell.why)
        if result.decision:
            case = ET.SubElement(
                suite, "testcase", name=_clean(result.decision.word.words), classname="fedaudit.verdict"
            )
            if verdict := VERDICTS.get(result.decision.word):
                tally[verdict] += 1
                ET.SubElement(case, verdict, message=_clean(result.decision.word.words)).text = _clean(
                    result.decision.sentence
                )
        suite.set("tests", str(len(suite)))
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(attribute, str(tally[tag]))
        root = ET.Element("testsuites")
        root.append(suite)
        ET.indent(root)
        return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _tag(finding: Finding, result: AuditResult) -> str:
    """What becomes of a finding; the questions that an attack answers say what it means."""
    if finding.outcome is not Outcome.RAN:
        return "skipped"
    return "failure" if result.decision is not None and finding.id in result.decision.failing else ""


def _tag_question(cell: Cell) -> str:
    """What becomes of a required question."""
    if cell.is_open:
        return "error"
    is_mild = isinstance(cell, Question) and cell.harm.is_mild
    return "failure" if cell.is_exposed and not is_mild and not cell.accepted else ""


def _clean(text: str) -> str:
    """On one line: a log that prints the file is read line by line."""
    return _NOT_XML.sub("\ufffd", " ".join(text.split()))
