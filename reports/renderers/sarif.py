"""SARIF 2.1.0: findings as code hosts show them, a rule for each attack, accountant or check.

OASIS Standard sarif-v2.1.0. A finding has no line of code: its location is audit.json, or the file of
what was played.
"""

import hashlib
import json
from typing import Any, ClassVar

from fedaudit.reports.document import Document
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import Finding, Outcome, Severity

LEVELS = {
    Severity.CRITICAL: "error",
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
    Severity.NONE: "none",
}
# SARIF 2.1.0, 3.27.9, of what found nothing: that alone is no pass
KINDS = {Outcome.RAN: "informational", Outcome.FAILED: "open", Outcome.NOT_APPLICABLE: "notApplicable"}


class Sarif(Renderer):
    suffix: ClassVar[str] = "sarif"

    def render(self, document: Document) -> bytes:
        result = document.result
        findings = [f for f in result.findings if not f.part_of]  # one leak is one result
        names = {name: i for i, name in enumerate(dict.fromkeys(f.id for f in findings))}
        by_id = {f.id: f for f in reversed(findings)}
        driver = {
            "name": "fedaudit",
            "version": result.reproduction.versions.get("fedaudit", "unknown"),
            "rules": [_rule(by_id[name]) for name in names],
        }
        run: dict[str, Any] = {
            "tool": {"driver": driver},
            "results": [_result(f, document, names[f.id]) for f in findings],
            "properties": {"policy": result.policy.name, "policySha256": result.policy.sha256},
        }
        if result.decision:
            run["invocations"] = [
                {
                    "executionSuccessful": True,
                    "exitCode": result.decision.word.exit_code,
                    "exitCodeDescription": result.decision.line,
                }
            ]
            run["properties"]["verdict"] = result.decision.word
        log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
        return json.dumps(log, indent=2, ensure_ascii=False).encode() + b"\n"


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": finding.id, "shortDescription": {"text": finding.method or finding.title}}
    if finding.does_not_show:
        rule["fullDescription"] = {"text": finding.does_not_show}
    if tags := [f"{t.catalogue} {t.edition} {i}" for t in finding.taxonomy for i in t.ids]:
        rule["properties"] = {"tags": tags}
    if finding.remedy:
        rule["help"] = {"text": finding.remedy}
    return rule


def _result(finding: Finding, document: Document, index: int) -> dict[str, Any]:
    result = document.result
    is_shown = finding.severity is not Severity.NONE
    text = " ".join(part for part in (finding.title.rstrip(".") + ".", finding.account) if part)
    key = hashlib.sha256(f"{result.scope.method} {result.scope.dataset} {finding.id}".encode()).hexdigest()
    found: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "kind": "fail" if is_shown else KINDS[finding.outcome],
        "level": LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": document.source}}}],
        "partialFingerprints": {"finding/v1": key},
        "properties": {"severity": str(finding.severity), "reason": finding.reason},
    }
    if finding.shown_by:
        found["properties"]["shownBy"] = list(finding.shown_by)
    # Section 3.27.23: every result of a run has the list, empty or not, or none has it. A suppression without a
    # status is an accepted one, and is valid in the editions that call it status and in those that call it state.
    if result.decision is not None:
        why = result.decision.accepted.get(finding.id)
        found["suppressions"] = [{"kind": "external", "justification": why}] if why else []
    return found
