"""JUnit XML: a test case for each finding and required question and one for the verdict, as CI servers read it.

What forbids a deployment is a failure, and a required question that stays open an error. The form is that of
Jenkins' xUnit plugin (junit-10.xsd). Without a decision every demonstrated finding fails.
"""

import re
import xml.etree.ElementTree as ET
from typing import ClassVar

from fedaudit.reports.decision import Word
from fedaudit.reports.document import Document
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
                ET.SubElement(case, tag, message=_clean(finding.title)).text = _clean(finding.summary)
        for q in (q for q in result.questions if q.required):
            case = ET.SubElement(suite, "testcase", name=_clean(q.id), classname="fedaudit.question")
            if q.is_open:
                tally["error"] += 1
                ET.SubElement(case, "error", message=_clean(q.state.words)).text = _clean(q.why)
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
    """What becomes of a finding; one that could not tell is skipped, since its questions say what is open."""
    if finding.outcome in (Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE, Outcome.FAILED):
        return "skipped"
    if finding.outcome is not Outcome.DEMONSTRATED:
        return ""
    return "failure" if result.decision is None or finding.id in result.decision.failing else ""


def _clean(text: str) -> str:
    """On one line: a log that prints the file is read line by line."""
    return _NOT_XML.sub("\ufffd", " ".join(text.split()))
