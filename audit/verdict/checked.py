"""What checks left, as subjects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.checks._check import CheckResult
from fedaudit.audit.verdict.subject import Subject
from fedaudit.fl.threats.threat import Position, ThreatModel
from fedaudit.reports.result import Severity


@dataclass(frozen=True)
class CheckSubject(Subject):
    """One result of a check."""

    result: CheckResult

    @property
    def severity(self) -> Severity:
        return self.result.severity

    @property
    def reason(self) -> str:
        return self.result.reason

    def words(self) -> Mapping[str, Any]:
        return {
            "id": self.result.id,
            "title": self.result.title,
            "source": "disclosure",
            "summary": self.result.summary,
            "threat": ThreatModel(position=Position.SERVER),
            "artifacts": list(self.result.artifacts),
            "does_not_show": self.result.does_not_show,
            "remedy": self.result.remedy,
        }
