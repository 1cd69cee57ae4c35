"""Markdown: one page for a merge request, with page 1 in its words, a row for each finding, the policy."""

import re
from collections.abc import Sequence
from typing import ClassVar

from fedaudit.reports.decision import DeploymentDecision
from fedaudit.reports.document import Document
from fedaudit.reports.format import OUTCOMES, SEVERITIES
from fedaudit.reports.page import LABELS
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import Finding, Outcome


class Markdown(Renderer):
    suffix: ClassVar[str] = "md"

    def render(self, document: Document) -> bytes:
        result, decision = document.result, document.result.decision
        lines = [
            f"# {_text(result.title)}",
            "",
            *(_write_page(decision) if decision else [_text(result.headline.sentence), ""]),
            "| Severity | Finding | What was found |",
            "|---|---|---|",
            *(
                f"| {_grade(f)} | {_text(f.title)} | {_text(f.account)} |"
                for f in result.findings
                if not f.part_of
            ),
        ]
        if document.policy:
            digest = f", SHA-256 `{result.policy.sha256}`" if result.policy.sha256 else ""
            judged = f"Policy {_text(result.policy.name)}, version {_text(result.policy.version)}"
            lines += ["", f"{judged}{digest}."]
        if decision and decision.accepted:
            lines += ["", *(f"* Accepted: {_text(k)} ({_text(v)})" for k, v in decision.accepted.items())]
        return ("\n".join(lines) + "\n").encode()


def _write_page(decision: DeploymentDecision) -> list[str]:
    """Page 1 in its own words, and who could learn what of page 2."""
    page = decision.page
    lines = [f"**{decision.word.words}**. {_text(page.sentence)}", ""]
    rows = [(str(n), h) for n, h in enumerate(page.harms, 1)] + [("", h) for h in page.bounded]
    if rows:
        lines += ["| | Who | What | At least | At most | |", "|---|---|---|---|---|---|"]
        for number, h in rows:
            limits = [h.instead, ""] if h.instead else [f"{h.least} of {h.of:,}" if h.of else h.least, h.most]
            lines.append(_row([number, h.reader, h.what, *limits, h.grade]))
        lines += ["", *([_text(page.more), ""] if page.more else [])]
    if page.readers:
        lines += [_row([LABELS["readers"], *page.columns]), "|---" * (len(page.columns) + 1) + "|"]
        lines += [_row([r.reader, *(words for _, words in r.cells)]) for r in page.readers]
        lines.append("")
    return [*lines, _text(page.coverage.text), "", _text(page.recommendation), ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _grade(finding: Finding) -> str:
    return SEVERITIES[finding.severity] if finding.outcome is Outcome.RAN else OUTCOMES[finding.outcome]


def _text(text: str) -> str:
    """On one line, with every sign that Markdown or HTML would act on escaped."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&-])", r"\\\1", " ".join(text.split()))
