"""What the import of a recorded federation found: statements that its messages contradict, or leave open."""

from fedaudit.reports.imported import CheckedStatement, ImportRecord
from fedaudit.reports.result import Finding, Outcome, Severity

REFUTES = (
    "central",
    "protection",
    "ledger",
)  # contradicted, these refute a claim of privacy; others make doubtful
HINGES = ("training", "fit")  # contradicted, these leave open whether examples are what was trained on


def list_doubts(imported: ImportRecord) -> list[Finding]:
    """One finding a statement that is contradicted, or that everything depends on and nothing bears out."""
    return [
        _describe_doubt(c)
        for c in imported.checks
        if c.status == "contradicted" or (c.id == "who" and _open(imported, c))
    ]


def _describe_doubt(check: CheckedStatement) -> Finding:
    is_contradicted = check.status == "contradicted"
    is_refuted = is_contradicted and check.id.partition("-")[0] in REFUTES
    did = "is contradicted by" if is_contradicted else "does not follow from"
    relied = "Whoever relied on the statement has less privacy than promised."
    return Finding(
        id=f"import-{check.id}",
        title=f"{check.title}: what was stated {did} the recorded messages",
        method="Check of an import",
        severity=Severity.CRITICAL if is_refuted else Severity.NONE,
        reason=relied if is_refuted else "What follows from a wrong statement says nothing.",
        summary=check.text,
        does_not_show="which of the two is wrong, the statement or the record",
        remedy="Correct the statement, or record again, and import once more.",
    )


def explain_unknown_owners(imported: ImportRecord | None) -> str:
    """Why no hit counts: nobody knows which client holds which examples; empty where that is known."""
    who = next((c for c in imported.checks if c.id == "who"), None) if imported else None
    if imported is None or who is None or not imported.truth or who.status in ("holds", "declared"):
        return ""
    return (
        "it is not established which client holds which examples, so what was measured on them proves nothing: "
        f"{who.text.rstrip('.')}"
    )


def explain_other_training(imported: ImportRecord | None) -> str:
    """Why hitting few says nothing: a statement on training or examples is contradicted; empty where none is."""
    wrong = (c for c in (imported.checks if imported else ()) if c.id in HINGES and c.status == "contradicted")
    if (found := next(wrong, None)) is None:
        return ""
    return f"what was stated of training or examples is contradicted: {found.text.rstrip('.')}"


def qualify_finding(finding: Finding, imported: ImportRecord | None) -> Finding:
    """The finding of an attack on an import says of whom it was measured, and where that is not established."""
    if (unknown := explain_unknown_owners(imported)) and finding.outcome is Outcome.RAN:
        return finding.model_copy(update={"reason": f"{unknown[:1].upper()}{unknown[1:]}."})
    if imported is None or not 0 < imported.truth < imported.clients or finding.outcome is not Outcome.RAN:
        return finding
    own = f", {len(imported.canaries)} of them the auditor's own" if imported.canaries else ""
    text = f"Measured on {imported.truth:,} of {imported.clients:,} clients, whose examples were given{own}."
    return finding.model_copy(update={"summary": f"{finding.summary} {text}"})


def _open(imported: ImportRecord, check: CheckedStatement) -> bool:
    return check.status == "open" and imported.truth > 0
