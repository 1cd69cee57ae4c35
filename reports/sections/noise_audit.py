"""Noise audit: whether the noise that was drawn is what the ledger says, kind by kind."""

import math
from collections.abc import Sequence

from fedaudit.reports.format import format_measurement, number, sentence_case
from fedaudit.reports.result import AuditResult, NoiseCheck
from fedaudit.reports.result import NoiseAuditRecord as Record
from fedaudit.reports.section import Block, Bullets, Card, Chart, Folded, Heading, Paragraph, Section, Table


class NoiseAudit(Section):
    card = Card(title="Tests of the noise", order=52)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.noise_audits:
            return []
        blocks: list[Block] = [
            Paragraph(
                "The run was played again, and the noise that it drew was tested: how much there is, of which "
                "law, and whether any of it comes twice, or again under another master seed. A test that "
                "fails refutes the bound. Tests that pass found no fault, which is no proof that there is none. "
                "What the bounds are worth, and the replay on neighbouring data, stand in the budget."
            ),
            _summarise(result.noise_audits),
        ]
        shared = _list_shared(result.noise_audits)
        for alike in _group_alike(result.noise_audits):
            kinds = ", ".join(a.kind.replace("_", " ") for a in alike)
            title = Heading(f"{sentence_case(kinds)}: {alike[0].protection}", anchor=alike[0].id)
            blocks += [title, Paragraph(alike[0].sentence)]
            for i, audit in enumerate(alike):
                blocks += _list_checks([c for c in audit.checks if c not in shared], audit.kind, first=not i)
        if shared:
            blocks += [Heading("All kinds"), *_list_checks(shared, "all kinds")]
        figures = [f for f in result.figures if not f.finding and f.id.startswith("noise-audit")]
        return [*blocks, *(Chart(f) for f in figures)]


def _list_shared(audits: Sequence[Record]) -> list[NoiseCheck]:
    """Tests that say the same of every kind, such as those of all kinds at once."""
    tested = [a.checks for a in audits if a.checks]
    return [c for c in tested[0] if all(c in other for other in tested[1:])] if len(tested) > 1 else []


def _group_alike(audits: Sequence[Record]) -> list[list[Record]]:
    """Kinds of which paper says the same: nothing failed, and the same tests were tried."""
    groups = dict[tuple[object, ...], list[Record]]()
    for audit in audits:
        passed = tuple((c.name, c.is_tried) if c.passed else audit.id for c in audit.checks)
        groups.setdefault((audit.protection, audit.sentence, passed), []).append(audit)
    return list(groups.values())


def _list_checks(checks: Sequence[NoiseCheck], kind: str, *, first: bool = True) -> list[Block]:
    """Each test that failed as an entry of its own; of those that passed paper has the names, `first` alone."""
    failed = [f"*Failed.* {sentence_case(c.name)}: {c.text}." for c in checks if not c.passed]
    passed = [c for c in checks if c.passed and c.is_tried]
    left = ", ".join(c.name for c in checks if not c.is_tried)
    said = [
        f"*Passed*: {', '.join(c.name for c in passed)}." if passed else "",
        f"*Not tried*, with too little noise: {left}." if left else "",
    ]
    text = " ".join(filter(None, said))
    measured = Bullets([f"{sentence_case(c.name)}: {_shorten(c.text)}." for c in passed])
    return [
        *([Bullets(failed)] if failed else []),
        *([Paragraph(text, small=True)] if text and first else []),
        *([Folded(f"Measured on {kind}", [measured])] if passed else []),
    ]


def _shorten(text: str) -> str:
    """What was measured, which stands in brackets after what it means."""
    meaning, _, measured = text.partition(" (")
    return measured.removesuffix(")") if measured else meaning


def _summarise(audits: Sequence[Record]) -> Table:
    return Table(
        header=["Artifact", "Claimed", "One release", "Whole run", "At least, measured", "Tests passed"],
        rows=[
            [
                a.kind,
                "none stated" if a.claimed is None else f"declared: {number(a.claimed)}",
                _format_allowance(a.single),
                _format_allowance(a.composed, a.releases),
                "not known" if a.at_least is None else format_measurement(a.at_least),
                _count_passed(a.checks),
            ]
            for a in audits
        ],
        align="lrrrrr",
        widths=[1.6, 1.3, 1.4, 1.7, 1.4, 1.2],
        caption="Epsilon of one kind alone; in brackets how many releases of one client. What is declared is "
        "what the ledger allows if it is true, computed exactly; at least is what the noise that was measured "
        "amounts to, at 97.5 % confidence, where one client moves the values by what the ledger declares. What "
        "the whole run loses, with its status, is in the budget.",
    )


def _count_passed(checks: Sequence[NoiseCheck]) -> str:
    tried = [c for c in checks if c.is_tried]
    return f"{sum(c.passed for c in tried)} of {len(tried)}" if tried else "not tested"


def _format_allowance(epsilon: float, releases: int = 0) -> str:
    """What the ledger allows; infinite where that is refuted."""
    if math.isinf(epsilon):
        return "no limit holds"
    return f"declared: {format_measurement(epsilon)}" + (f" ({releases:,})" if releases else "")
