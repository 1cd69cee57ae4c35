"""Reports of what is no federation: claims of differential privacy, a mechanism that was played."""

from dataclasses import dataclass
from datetime import UTC, datetime

from fedaudit.reports.document import Document
from fedaudit.reports.result import AuditResult, AuditScope, Headline, PolicyRecord, ReproductionRecord


@dataclass(frozen=True, kw_only=True)
class StandaloneDocument(Document):
    """A document that says itself what it is about."""

    about: str

    @property
    def subject(self) -> str:
        return self.about

    @property
    def foot(self) -> str:
        return self.about


def describe_alone(title: str, headline: Headline, command: str) -> AuditResult:
    """The smallest audit result, of what is looked at without a federation; findings or claims come later."""
    scope = AuditScope(
        method="",
        method_source="",
        method_text="",
        dataset="",
        dataset_text="",
        clients=0,
        clients_text="",
        rounds=0,
        model="",
        parameters=0,
    )
    return AuditResult(
        title=title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        headline=headline,
        scope=scope,
        exposures=[],
        findings=[],
        policy=PolicyRecord(name="", version="", lines=[]),
        reproduction=ReproductionRecord(
            command=command, config="", seed=0, versions={}, hardware={}, hashes={}, started="", seconds={}
        ),
    )
