"""What the import of a recorded federation found: statements that its messages contradict, or leave open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.reports.imported import CheckedStatement, ImportRecord
from fedaudit.reports.result import Finding, Outcome, Severity

REFUTES = (
    "central",
    "protection",
    "ledger",
)  # contradicted, these refute a claim of privacy; others make doubtful
HINGES = ("training", "fit")  # contradicted, these leave open whether examples are what was trained on
MEASURED = (Outcome.DEMONSTRATED, Outcome.NOT_DEMONSTRATED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True)
class Stated(Subject):
    """One check of the import that did not come out as stated."""

    check: CheckedStatement

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="claim_refuted", value=1)]

    @property
    def not_gradable(self) -> Verdict | None:
        if self.check.id.partition("-")[0] in REFUTES and self.check.status == "contradicted":
            return None
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason="What follows from a wrong statement says nothing.")

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        did = "is contradicted by" if self.check.status == "contradicted" else "does not follow from"
        return {
            "id": f"import-{self.check.id}",
            "title": f"{self.check.title}: what was stated {did} the recorded messages",
            "source": "disclosure",
            "method": "Check of an import",
            "summary": self.check.text,
            "does_not_show": "which of the two is wrong, the statement or the record",
            "remedy": "Correct the statement, or record again, and import once more.",
        }


def doubts(imported: ImportRecord) -> list[Stated]:
    """One subject a statement that is contradicted, or that everything depends on and nothing bears out."""
    return [
        Stated(c) for c in imported.checks if c.status == "contradicted" or (c.id == "who" and _open(imported, c))
    ]


def qualify_finding(finding: Finding, imported: ImportRecord | None) -> Finding:
    """The finding of an attack, inconclusive where nobody knows whose examples it was measured on."""
    who = next((c for c in imported.checks if c.id == "who"), None) if imported else None
    if who is None or finding.source != "attack" or finding.outcome not in MEASURED:
        return finding
    if imported is None or not imported.truth:
        return finding
    if who.status in ("holds", "declared"):
        return _make_inconclusive(_of_some(finding, imported), imported)
    reason = (
        "It is not established which client holds which examples, so what was measured on them proves nothing: "
        f"{who.text}"
    )
    return finding.model_copy(
        update={"outcome": Outcome.INCONCLUSIVE, "severity": Severity.NONE, "reason": reason}
    )


def _make_inconclusive(finding: Finding, imported: ImportRecord) -> Finding:
    """Inconclusive where little was found with examples that may not be those that were trained on."""
    wrong = next((c for c in imported.checks if c.id in HINGES and c.status == "contradicted"), None)
    if wrong is None or finding.outcome is Outcome.DEMONSTRATED:
        return finding
    reason = (
        f"What was stated of training or examples is contradicted, so finding little says nothing: {wrong.text}"
    )
    return finding.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "reason": reason})


def _of_some(finding: Finding, imported: ImportRecord) -> Finding:
    """Says so where it was measured on some clients only."""
    if imported.truth >= imported.clients:
        return finding
    own = f", {len(imported.canaries)} of them the auditor's own" if imported.canaries else ""
    text = f"Measured on {imported.truth:,} of {imported.clients:,} clients, whose examples were given{own}."
    return finding.model_copy(update={"summary": f"{finding.summary} {text}"})


def _open(imported: ImportRecord, check: CheckedStatement) -> bool:
    return check.status == "open" and imported.truth > 0
