"""The terms of a reviewer: what stands beside the policy when a verdict is given.

A reviewer may move the bar, accept findings and open questions by name, hold a run against an earlier one, and
require attacks. All of it goes through the one decider (audit/verdict/decision.py) and is kept in its decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fedaudit.reports.questions import Cell, State
from fedaudit.reports.result import AuditResult, Finding, Severity

AnyCell = TypeVar("AnyCell", bound=Cell)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a reviewer adds to the policy; by default nothing."""

    fail_on: Severity | None = None  # the lowest severity that forbids a deployment; None: as the policy says
    # id of a finding or an open question -> who answers for it, until when and why
    accepted: Mapping[str, str] = field(default_factory=dict)
    known: Sequence[str] = ()  # ids of findings that the baseline has, no milder
    unmet: Sequence[str] = ()  # requirements that were not met, as sentences
    refused: Sequence[str] = ()  # waivers that do not count, as sentences

    @property
    def has_any(self) -> bool:
        """Whether the reviewer adds anything."""
        return any(vars(self).values())

    def forgives(self, finding: Finding) -> bool:
        """Whether a finding does not forbid a deployment, although it was demonstrated."""
        return finding.id in self.accepted or finding.id in self.known


NO_TERMS = Terms()


def accept_cells(cells: Sequence[AnyCell], terms: Terms) -> list[AnyCell]:
    """The same, with what was accepted of those that are not clear."""
    return [
        c.model_copy(update={"accepted": terms.accepted[c.id]})
        if c.state is not State.CLEAR and c.id in terms.accepted
        else c
        for c in cells
    ]


def select_demonstrated(findings: Sequence[Finding]) -> list[Finding]:
    """Those that were seen to work, each leak once."""
    return [f for f in findings if f.is_demonstrated]


def find_known(result: AuditResult, baseline: AuditResult | None) -> list[str]:
    """Ids of demonstrated findings that the baseline has as well, no milder."""
    before = [f for f in baseline.findings if f.severity.rank] if baseline else []
    ranks = {f.id: f.severity.rank for f in before}  # of all: what leads a leak now may not have led it then
    return [f.id for f in select_demonstrated(result.findings) if ranks.get(f.id, -1) >= f.severity.rank]
