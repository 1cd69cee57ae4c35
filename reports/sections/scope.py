"""Scope: what was audited, in words and numbers that a reviewer can check."""

from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult
from fedaudit.reports.result import AuditScope as ScopeRecord
from fedaudit.reports.section import Block, Bullets, Card, Heading, KeyValues, Paragraph, Section, Table

MOST_CLIENTS = 20  # rows of a table; the whole is in audit.json
MOST_CLASSES = 12  # columns that fit a page


class Scope(Section):
    card = Card(title="What was audited", order=20)

    def build(self, result: AuditResult) -> list[Block]:
        s = result.scope
        facts = {
            "Method": f"{s.method} ({s.method_source})" if s.method_source else s.method,
            "Data": s.dataset,
            "Clients": fmt.plural(s.clients, "client"),
            "Rounds": f"{s.rounds:,}",
            "Origin": "recorded elsewhere; see Where it came from"
            if result.imported
            else "simulated by fedaudit",
            "Model": f"{s.model}, {fmt.plural(s.parameters, 'parameter')}",
        }
        if s.training:
            facts["Settings"] = "; ".join(f"{k}: {v}" for k, v in s.training.items())
        blocks: list[Block] = [
            Paragraph(" ".join(t for t in (s.method_text, s.dataset_text, s.clients_text) if t)),
            KeyValues(items=facts),
            Heading("Protections"),
        ]
        if s.protections:
            blocks.append(Bullets(s.protections))
        else:
            blocks.append(Paragraph("None: every message was recorded as the client sent it."))
        blocks.append(Heading("Threat models"))
        if s.threats:
            blocks.append(
                Paragraph(
                    "An attack received only what its adversary could see and know. These adversaries attacked:"
                )
            )
            blocks.append(Bullets([fmt.threat(t) for t in s.threats]))
        else:
            blocks.append(Paragraph("No attack ran, so no adversary was assumed."))
        return [*blocks, Heading("Who holds what"), *_holdings(s)]


def _holdings(s: ScopeRecord) -> list[Block]:
    """Client by class counts; many classes shrink to how many classes a client holds."""
    if not s.counts:
        return [Paragraph("The examples each client holds were not given to the auditor.")]
    classes = max(len(row) for row in s.counts)
    names = [*s.class_names, *(str(i) for i in range(len(s.class_names), classes))][:classes]
    wide = classes > MOST_CLASSES
    rows = []
    for client, counts in enumerate(s.counts[:MOST_CLIENTS]):
        held = [f"{n:,}" for n in counts] + ["0"] * (classes - len(counts))
        spread = [f"{sum(n > 0 for n in counts)} of {classes}", f"{max(counts, default=0):,}"]
        rows.append([str(client), f"{sum(counts):,}", *(spread if wide else held)])
    one, many = ("class", "classes") if s.has_classes else ("group", "groups")
    if not s.class_names and classes == 1:
        rows, names, wide = [row[:2] for row in rows], [], False  # labels make no groups
    caption = (
        f"Examples by client{f' and {one}' if names else ''}. The auditor knows this; an adversary does not."
    )
    if len(s.counts) > MOST_CLIENTS:
        caption += f" The first {MOST_CLIENTS} of {len(s.counts):,} clients; all are in audit.json."
    header = ["Client", "Examples", *([f"{many.capitalize()} held", f"Largest {one}"] if wide else names)]
    return [Table(header=header, rows=rows, caption=caption)]
