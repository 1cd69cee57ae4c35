"""Policy: the rules that turned evidence into severities, with the reason for each threshold."""

from collections.abc import Sequence

from fedaudit.reports.format import SEVERITIES, date, plural
from fedaudit.reports.result import AuditResult, PolicyRule
from fedaudit.reports.section import Block, Card, Folded, Paragraph, Section, Table


class Policy(Section):
    card = Card(title="Policy", order=80)

    def build(self, result: AuditResult) -> list[Block]:
        policy = result.policy
        named = f"Severities were set by policy {policy.name}, version {policy.version}."
        named += f" {_describe_registration(result)}" if policy.sha256 else ""
        if not policy.rules:
            return [Paragraph(f"{named} It has no rules, so every severity is none.")]
        used = {f.rule for f in result.findings}
        fired = [r for r in policy.rules if r.id in used]
        rest = [r for r in policy.rules if r.id not in used]
        if result.decision and result.decision.rule:
            named += f" The verdict follows from `{result.decision.rule}`."
        blocks: list[Block] = [
            Paragraph(f"{named} Another policy over the same evidence may rank findings otherwise.")
        ]
        if fired:  # findings quote these, with their reasons
            caption = "The rules that held, with the reason for each threshold."
            blocks.append(
                Folded(plural(len(fired), "rule that held", "rules that held"), [_rules(fired, caption)])
            )
        else:
            blocks.append(Paragraph("None of its rules held."))
        if rest:
            caption = "Rules that did not hold, with the reason for each threshold."
            title = f"{plural(len(rest), 'rule')} that did not hold"
            blocks += [Folded(title, [_rules(rest, caption)])]
        return blocks


def _rules(rules: Sequence[PolicyRule], caption: str) -> Table:
    rows = [[r.id, SEVERITIES[r.severity], r.when, r.reason] for r in rules]
    return Table(
        header=["Rule", "Severity", "When", "Reason"],
        rows=rows,
        align="llll",
        widths=[1.5, 1, 2.4, 3.6],
        caption=caption,
    )


def _describe_registration(result: AuditResult) -> str:
    """Whether it was there before the evidence was, and who says so."""
    policy = result.policy
    pinned = f"Its SHA-256 is {policy.sha256}."
    if not policy.fixed:
        return f"{pinned} It is not pre-registered: the attacks ran before it was chosen."
    evidence = f", and the first evidence is of {date(policy.first_evidence)}" if policy.first_evidence else ""
    who = (
        "signed by whoever sealed the report"
        if result.seal
        else "stated by the owner of the run, signed by nobody"
    )
    return f"{pinned} Its thresholds were fixed on {date(policy.fixed)}{evidence} ({who})."
