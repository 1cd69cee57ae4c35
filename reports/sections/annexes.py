"""Annexes: what a data-protection impact assessment and a technical documentation quote, from the findings."""

from collections.abc import Sequence

from fedaudit.attacks.measure import find_measure
from fedaudit.reports import format as fmt
from fedaudit.reports.evidence_table import telling
from fedaudit.reports.questions import describe_limits, list_harms
from fedaudit.reports.result import AuditResult, Finding, Outcome
from fedaudit.reports.section import Blanks, Block, Card, Heading, KeyValues, Paragraph, Section, Table


class Annexes(Section):
    card = Card(title="Annexes for the file", order=95)

    def build(self, result: AuditResult) -> list[Block]:
        if result.decision is None:
            return []
        return [
            Heading("For a data-protection impact assessment"),
            Paragraph(
                "EDPB Opinion 28/2024 asks whether personal data can be extracted from a "
                "model or obtained by queries, with means reasonably likely to be used. Tests of reconstruction, "
                "of membership and of attributes are evidence for that; no test is proof of anonymity."
            ),
            *_observers(result),
            Blanks(["Advice of the data-protection officer", "Residual risk accepted by", "Date and signature"]),
            Heading("For the technical documentation (AI Act, Annex IV, 2 (g) and (h))"),
            KeyValues(items=_technical(result)),
            Blanks(["Responsible person", "Date and signature"]),
        ]


def _observers(result: AuditResult) -> list[Block]:
    positions = dict.fromkeys(q.observer for q in result.questions)
    positions |= dict.fromkeys(f.threat.position for f in result.findings if f.threat)
    rows = [_observer(p, result) for p in positions]
    if not rows:
        return [Paragraph("No message was recorded, so it is not known who saw anything.")]
    return [
        Table(
            header=[
                "Observer",
                "Tests run",
                "Most who are hit, with both limits",
                "Not answered",
                "Residual risk",
            ],
            rows=rows,
            align="lllll",
            widths=[1.7, 2.4, 2.9, 2.6, 1.1],
            caption="By observer: what ran, what it showed, and which questions nothing answered.",
        )
    ]


def _observer(position: str, result: AuditResult) -> list[str]:
    ran = [f for f in result.findings if f.threat and f.threat.position == position and f.outcome is Outcome.RAN]
    left = [q for q in result.questions if q.observer == position and not q.is_answered]
    return [
        fmt.sentence_case(fmt.name_observer(position)),
        ", ".join(f.id for f in ran) or "none",
        _strongest(position, result),
        list_harms(left) or "no question",
        _residual(position, result),
    ]


def _strongest(position: str, result: AuditResult) -> str:
    """The question of which most are hit at least, with both its limits."""
    asked = [q for q in result.questions if q.observer == position and q.at_least]
    if not asked:
        return "nobody is known to be hit"
    worst = max(asked, key=lambda q: (not q.harm.is_mild, q.at_least / max(1, q.people)))
    return f"{', '.join(worst.findings[:1])}: {worst.harm.label}, {describe_limits(worst)}"


def _residual(position: str, result: AuditResult) -> str:
    asked = [q for q in result.questions if q.observer == position]
    if any(q.is_exposed for q in asked):
        return "exposed, as configured"
    return (
        "not known" if not asked or any(not q.is_answered for q in asked) else "of a stronger attack than these"
    )


def _technical(result: AuditResult) -> dict[str, str]:
    """Tests, metrics, data and dates, as Annex IV lists them."""
    r = result.reproduction
    attacks = [f for f in result.findings if f.source in ("attack", "robustness")]
    real = {f.id: [e for e in f.evidence if e.control == "none"] for f in attacks}
    words = sorted({find_measure(e.measure).words for evidence in real.values() for e in telling(evidence)})
    facts = {
        "Data used": f"{result.scope.dataset}. {result.scope.dataset_text}",
        "Tests": f"{fmt.plural(sum(f.outcome is Outcome.RAN for f in attacks), 'attack')} ran; "
        f"{fmt.count_answered(result.cells)}; log: evidence/ in the run folder",
        "Metrics": "; ".join(words) or "none measured",
        "Results": result.decision.sentence if result.decision else "",
        "Cybersecurity": "; ".join(result.scope.protections) or "no protection of messages was configured",
        "Dates": f"tests began on {fmt.date(r.started)}; the report is of {fmt.date(result.created)}",
        "Test report": "this document; digests of its files are under How to reproduce",
    }
    if result.policy.fixed:
        facts["Thresholds"] = (
            f"fixed on {fmt.date(result.policy.fixed)}; first evidence {_on(result.policy.first_evidence)}"
        )
    if named_by := _catalogues(result.findings):
        facts["Catalogues"] = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in named_by.items())
    return facts


def _on(time: str) -> str:
    return f"on {fmt.date(time)}" if time else "at no time"


def _catalogues(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """What published catalogues call the demonstrated findings, edition by edition."""
    found: dict[str, list[str]] = {}
    for f in findings:
        for taxon in f.taxonomy if f.severity.rank else ():
            near = " (nearest)" if taxon.nearest else ""
            ids = found.setdefault(f"{taxon.catalogue} {taxon.edition}{near}", [])
            ids += [i for i in taxon.ids if i not in ids]
    return found
