"""Policy: how much of a harm is tolerable, what must be answered, which attacks must have run, and why."""

from fedaudit.reports.format import date, plural
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Folded, Paragraph, Section, Table


class Policy(Section):
    card = Card(title="Policy", order=80)

    def build(self, result: AuditResult) -> list[Block]:
        policy = result.policy
        named = (
            f"What is tolerable is said by policy {policy.name}, version {policy.version}, panel {policy.panel}."
        )
        named += f" {_describe_registration(result)}" if policy.sha256 else ""
        if result.decision and result.decision.rule:
            named += f" The verdict follows from `{result.decision.rule}`."
        table = Table(
            header=["What it says", "Reason"],
            rows=[[line.what, line.reason] for line in policy.lines],
            align="ll",
            widths=[4, 5],
            caption="Every line of the policy, with its reason.",
        )
        return [Paragraph(named), Folded(plural(len(policy.lines), "line"), [table])]


def _describe_registration(result: AuditResult) -> str:
    """Whether it was there before the evidence was, and who says so."""
    policy = result.policy
    pinned = f"Its SHA-256 is {policy.sha256}: {policy.owner}."
    if not policy.fixed:
        return f"{pinned} It is not pre-registered: the attacks ran before it was chosen."
    evidence = f", and the first evidence is of {date(policy.first_evidence)}" if policy.first_evidence else ""
    who = (
        "signed by whoever sealed the report"
        if result.seal
        else "stated by the owner of the run, signed by nobody"
    )
    return f"{pinned} Its thresholds were fixed on {date(policy.fixed)}{evidence} ({who})."
