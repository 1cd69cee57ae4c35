"""Subjects: whatever was looked into, an attack, a check, a bound or a rule, and the finding about it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.reports.result import Finding, Outcome, Severity


class Subject(ABC):
    """Something that was looked into: how bad what was found there is, and the words of a finding about it."""

    @property
    def outcome(self) -> Outcome:
        """Whether it looked at all."""
        return Outcome.RAN

    @property
    @abstractmethod
    def severity(self) -> Severity:
        """How bad it is; none: nothing was found."""

    @property
    def reason(self) -> str:
        """Why it is that bad, or why nothing could be looked into; a sentence."""
        return ""

    @abstractmethod
    def words(self) -> Mapping[str, Any]:
        """The fields of the Finding but for outcome, severity and reason."""


def make_finding(subject: Subject, policy: GradingPolicy) -> Finding:
    """The finding about one subject: the only way to one. A policy may hold it for worse, or milder."""
    words = subject.words()
    severity, reason = subject.severity, subject.reason
    override = policy.find_override(str(words["id"])) if severity is not Severity.NONE else None
    if override is not None:
        severity = override.severity
        reason = f"{reason} Policy {policy.name} {policy.version} rates it {severity}: {override.reason}".strip()
    return Finding(outcome=subject.outcome, severity=severity, reason=reason, **words)
