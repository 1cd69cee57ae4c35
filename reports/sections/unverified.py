"""Unverified claims: what attacks assert of clients whose examples the auditor was not given."""

from fedaudit.reports.imported import UnverifiedAttack as UnverifiedRecord
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Card, Heading, Paragraph, Section, Table

MOST = 50  # clients of one table; all are in audit.json


class Unverified(Section):
    card = Card(title="Unverified claims", order=41)

    def build(self, result: AuditResult) -> list[Block]:
        found = result.unverified
        if not found:
            return []
        blocks: list[Block] = [
            Paragraph(
                "These attacks ran on the recorded messages. What these clients hold was not given to the "
                "auditor, so nobody knows whether what they claim is true: it has no severity and is no finding. "
                "Whoever may see the clients' examples can check it, line by line. A claim that is right more "
                "often than guessing would be is a leak."
            )
        ]
        for one in found:
            blocks += _claims(one)
        if silent := [f"{u.title} (`{u.attack}`)" for u in found if not u.claims]:
            text = (
                "What these claim are images, or scores of images, and has no words. Where the auditor planted "
            )
            text += (
                "messages, they ran on those alone. To check them, give the examples of some clients as truth, "
            )
            text += "or let a client of the auditor's own take part."
            blocks += [Heading("Claims without words"), Paragraph(text), Bullets(silent)]
        return blocks


def _claims(one: UnverifiedRecord) -> list[Block]:
    if not one.claims:
        return []
    rows = [[f"client {a.client}", a.says, a.check] for a in one.claims[:MOST]]
    more = f" The first {MOST} of {len(one.claims):,} clients." if len(one.claims) > MOST else ""
    return [
        Heading(one.title),
        Table(
            header=["Client", f"Claimed of it, as read by the {one.observer}", "To check it, see"],
            rows=rows,
            align="lll",
            widths=[0.8, 3, 2],
            caption=f"What `{one.attack}` asserts; nothing of it was verified.{more}",
        ),
    ]
