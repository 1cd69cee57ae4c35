"""What checks left, as subjects that the policy grades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.checks._check import CheckResult
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.fl.threats.threat import Position, ThreatModel


@dataclass(frozen=True)
class CheckSubject(Subject):
    """One result of a check."""

    result: CheckResult

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure=measure, value=value) for measure, value in self.result.facts.items()]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
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
