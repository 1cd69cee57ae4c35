"""Markdown: one page for a merge request, with the decision, the policy and a row for each finding."""

import re
from typing import ClassVar

from fedaudit.reports.document import Document
from fedaudit.reports.format import OUTCOMES, SEVERITIES, name_observer
from fedaudit.reports.questions import describe_answered, describe_limits
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
            *([_text(describe_answered(result.cells)), ""] if result.cells else []),
            "| Question | Read by | State | Limits |",
            "|---|---|---|---|",
            *(
                f"| {_text(q.harm.label)} | {_text(name_observer(q.observer))} | {q.state.value} | "
                f"{_text(describe_limits(q))} |"
                for q in result.questions
                if q.required
            ),
            "",
            "| Severity | Finding | What was found |",
            "|---|---|---|",
            *(
                f"| {_grade(f)} | {_text(f.title)} | {_text(f.account)} |"
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
    return SEVERITIES[finding.severity] if finding.outcome is Outcome.RAN else OUTCOMES[finding.outcome]


def _text(text: str) -> str:
    """On one line, with every sign that Markdown or HTML would act on escaped."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&-])", r"\\\1", " ".join(text.split()))
