"""Markdown: one page for a merge request, with the decision, the policy and a row for each finding."""

import re
from typing import ClassVar

from fedaudit.reports.document import Document
from fedaudit.reports.format import OUTCOMES, SEVERITIES
from fedaudit.reports.questions import describe_answered
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import Finding, Outcome


class Markdown(Renderer):
    suffix: ClassVar[str] = "md"

    def render(self, document: Document) -> bytes:
        result, decision = document.result, document.result.decision
        lines = [
            f"# {_text(result.title)}",
            "",
            *([f"**{_text(decision.word.words)}**. {_text(decision.sentence)}", ""] if decision else []),
            _text(result.headline.sentence),
            "",
            *([_text(describe_answered(result.questions)), ""] if result.questions else []),
            "| Severity | Finding | What was found |",
            "|---|---|---|",
            *(
                f"| {_grade(f)} | {_text(f.title)} | {_text(f.summary)} |"
                for f in result.findings
                if not f.part_of
            ),
            "",
            f"Policy {_text(result.policy.name)}, version {_text(result.policy.version)}"
            + (f", SHA-256 `{result.policy.sha256}`" if result.policy.sha256 else "")
            + ".",
        ]
        if decision and decision.accepted:
            lines += ["", *(f"* Accepted: {_text(k)} ({_text(v)})" for k, v in decision.accepted.items())]
        return ("\n".join(lines) + "\n").encode()


def _grade(finding: Finding) -> str:
    if finding.outcome is Outcome.DEMONSTRATED:
        return SEVERITIES[finding.severity]
    return OUTCOMES[finding.outcome]


def _text(text: str) -> str:
    """On one line, with every sign that Markdown or HTML would act on escaped."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&-])", r"\\\1", " ".join(text.split()))
