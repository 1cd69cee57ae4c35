"""A reviewer's terms: the bar, attacks that must have run, what somebody answers for.

    fail_on: medium
    attacks: [upcnn, {name: lira, shadows: 16}]
    waivers:
      - {run: ..., finding: upcnn, severity: high, digest: ..., reason: ..., owner: ..., expires: 2027-01-31}
      - {run: ..., question: membership.public, reason: ..., owner: ..., expires: 2027-01-31}

A waiver is about one finding or one open question of one run, as it was seen: `fedaudit explain` prints what
names it. A finding that became severer, or the same one of another run, is not accepted by it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fedaudit.audit.case.digests import of_value, timeless
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import Group, PluginSpec
from fedaudit.audit.verdict.policy import select_demonstrated
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.result import AuditResult, Finding, Severity

SHA256 = r"^[0-9a-f]{64}$"


class Waiver(Group):
    """One finding of one run, or one question that it left open, that is accepted for a while."""

    run: str = Field(pattern=SHA256, description="digest of the run's content, as `fedaudit verify` prints it")
    finding: str = Field(default="", description="id of the finding")
    severity: Severity | None = Field(default=None, description="of the finding that is accepted")
    digest: str = Field(default="", description="of the finding, as `fedaudit explain` prints it")
    question: str = Field(default="", description="id of the open question, in place of the three of a finding")
    reason: str = Field(min_length=10, description="why it is accepted")
    owner: str = Field(min_length=1, description="who answers for it")
    expires: date = Field(description="the last day on which it counts, as 2027-01-31")

    @model_validator(mode="after")
    def _is_about_one(self) -> "Waiver":
        given = [k for k in ("finding", "severity", "digest") if getattr(self, k)]
        if bool(self.question) == bool(given) or (given and len(given) < 3):
            raise ValueError("must have finding, severity and digest, or question in their place")
        if self.digest and not re.fullmatch(SHA256, self.digest):
            raise ValueError("digest must be 64 hexadecimal digits, as `fedaudit explain` prints them")
        return self

    @field_validator("expires", mode="before")
    @classmethod
    def _read_day(cls, value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else value


class ReviewerTerms(Group):
    """What a reviewer adds to a policy."""

    fail_on: Literal["critical", "high", "medium", "low"] | None = Field(
        default=None, description="the lowest severity that forbids a deployment; left out: as the policy says"
    )
    attacks: tuple[PluginSpec, ...] = Field(
        default=(), description="attacks that must have run: names, or a name with its settings"
    )
    waivers: tuple[Waiver, ...] = Field(default=(), description="a list of waivers")


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What waivers come to: what is accepted, and sentences about waivers that do not count."""

    accepted: dict[str, str] = field(default_factory=dict)  # id -> who answers for it, until when and why
    refused: tuple[str, ...] = ()


def read_terms(path: Path | None) -> ReviewerTerms:
    return ReviewerTerms() if path is None else validate(ReviewerTerms, read_yaml(path), path)


def digest_finding(finding: Finding) -> str:
    """SHA-256 of a finding as it was seen, with its evidence; without how long it took."""
    return of_value(timeless(finding.model_dump(mode="json"), ("seconds",)))


def apply_waivers(waivers: Sequence[Waiver], result: AuditResult, run: str, today: date) -> Acceptance:
    """What waivers accept of a run's demonstrated findings and open questions; `run`: digest of its content."""
    accepted, refused = dict[str, str](), list[str]()
    left = {c.id for c in result.cells if c.is_open}
    for waiver in waivers:
        same = [f for f in select_demonstrated(result.findings) if f.id == waiver.finding]
        if not same and waiver.question not in left:
            continue
        name = waiver.finding or waiver.question
        if reason := _find_mismatch(waiver, same, run, today):
            refused.append(f"The waiver of {name} by {waiver.owner} does not count: {reason}")
        else:
            accepted[name] = f"{waiver.owner}, until {waiver.expires}: {waiver.reason}"
    return Acceptance(accepted=accepted, refused=tuple(refused))


def _find_mismatch(waiver: Waiver, findings: Sequence[Finding], run: str, today: date) -> str:
    """Why a waiver is not about these findings, or this run's questions, as a clause; empty where it is."""
    if waiver.expires < today:
        return f"it expired on {waiver.expires}"
    if waiver.run != run:
        return f"it is about another run, {waiver.run[:12]}..."
    for finding in findings:
        if finding.severity is not waiver.severity:
            return f"it accepts {waiver.severity}, and the finding is {finding.severity}"
        if digest_finding(finding) != waiver.digest:
            return "the finding is no longer the one that was accepted: its digest differs"
    return ""
