"""The record of a noise audit: what the ledger's lines of one kind cost, and what was tested of their noise."""

from collections.abc import Sequence
from typing import NamedTuple

from fedaudit.audit.accounting.accountants.auto import Auto
from fedaudit.audit.accounting.budget import round_up, towards
from fedaudit.audit.accounting.terms import Terms, terms
from fedaudit.fl.ledger import Release
from fedaudit.reports.result import NoiseAuditRecord, NoiseCheck


class NoisedReleases(NamedTuple):
    """All noised releases of one kind by the sender with the largest loss."""

    releases: int
    epsilon: float
    line: Release  # one of them
    counts: Terms = {}  # as accountants see them


def record_kind(
    kind: str, checks: Sequence[NoiseCheck], releases: Sequence[Release], delta: float, missing: str
) -> NoiseAuditRecord:
    """All of a record that follows from what was tested of a kind's noise and from the ledger's lines of it."""
    claim = find_claim(releases, delta)
    line = claim.line
    failed = [c for c in checks if not c.passed]
    reason = "" if checks else missing
    return NoiseAuditRecord(
        id=f"noise-audit-{kind}",
        kind=kind,
        protection=line.source or "the method",
        mechanism=line.mechanism,
        unit=line.unit,
        adjacency=line.adjacency,
        delta=delta,
        multiplier=line.noise_multiplier,
        claimed=line.claimed_epsilon,
        single=round_up(Auto().epsilon([line], delta).epsilon),
        releases=claim.releases,
        composed=round_up(claim.epsilon),
        failure_rate=round(sum(c.failure_rate for c in checks), 12),
        refuted=bool(failed),
        sentence=_summarise(checks, failed, reason),
        checks=list(checks),
        not_audited=reason,
    )


def _summarise(checks: Sequence[NoiseCheck], failed: Sequence[NoiseCheck], reason: str) -> str:
    """What the tests say, for people."""
    if reason:
        return f"Not audited. {reason}"
    if failed:
        return " ".join(f"{c.name.capitalize()} failed: {c.text}." for c in failed)
    tried = sum(c.is_tried for c in checks)
    return f"None of {tried} tests contradicts the noise, which is no proof that it is right."


def find_claim(releases: Sequence[Release], delta: float) -> NoisedReleases:
    """What the ledger says of a kind: as the accountants see it, sampling credited where nobody can see it."""
    worst = NoisedReleases(0, 0.0, releases[0])
    known: dict[object, float] = {}  # many clients release the same
    for unit in sorted({r.unit for r in releases}):
        own = [r for r in releases if r.unit == unit]
        observer = "another client" if all(r.sender.endswith("/*") for r in own) else "server"
        for group in towards(observer, own, unit)[1].values():
            counts = terms(group)
            cost = frozenset(counts.items())
            if cost not in known:
                known[cost] = Auto().epsilon(group, delta).epsilon
            if not worst.releases or known[cost] > worst.epsilon:
                worst = NoisedReleases(sum(r.count for r in group), known[cost], group[0], counts)
    return worst
