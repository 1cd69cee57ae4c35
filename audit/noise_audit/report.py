"""The tests of the noise as the report's records: one for each kind of noised values."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from fedaudit.audit.accounting.accountants import prv
from fedaudit.audit.accounting.accountants.auto import Auto
from fedaudit.audit.accounting.budget import rounded_down, rounded_up, towards
from fedaudit.audit.accounting.terms import Terms, terms
from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.noise_samples import NoiseSample, draw_noise
from fedaudit.audit.noise_audit.noise_tests import NoiseTest, run_tests
from fedaudit.audit.noise_audit.play import PlayLimits, reseed
from fedaudit.fl.ledger import Release
from fedaudit.reports.result import NoiseAuditRecord, NoiseCheck

CONFIDENCE = 0.975  # of a lower bound


class NoisedReleases(NamedTuple):
    """All noised releases of one kind by the sender with the largest loss."""

    releases: int
    epsilon: float
    line: Release  # one of them
    counts: Terms = {}  # as accountants see them


@sharing()
def audit_noise(
    case: SimulatedCase, releases: Sequence[Release], delta: float, alpha: float, limits: PlayLimits | None = None
) -> list[NoiseAuditRecord]:
    """Play the run twice, and once under another master seed, and test all the noise that it draws.

    Returns a record for each kind of noised values in `releases`. Correct noise is refuted with a chance of at
    most `alpha`. Raises whatever the federation's own code raises.
    """
    noised = [r for r in releases if r.noise_multiplier]
    if not noised:
        return []
    limits = limits or PlayLimits()
    ours, again = (draw_noise(case, noised, limits) for _ in range(2))
    other = draw_noise(reseed(case), noised, limits)
    tests = run_tests(ours, other, alpha, same_seed=again)
    records = record_tests(tests, {s.line.kind for s in ours}, noised, delta)
    return [r.model_copy(update={"at_least": bound_below(r.kind, ours, noised, delta)}) for r in records]


def record_tests(
    tests: Sequence[NoiseTest],
    sampled: set[str],
    releases: Sequence[Release],
    delta: float,
    missing: str = "No noise of this kind was heard in a play of the run.",
) -> list[NoiseAuditRecord]:
    """A record for each kind in `releases`; of kinds that are not in `sampled`, that nothing was tested."""
    records = []
    for kind in dict.fromkeys(r.kind for r in releases if r.noise_multiplier):
        own = [r for r in releases if r.kind == kind and r.noise_multiplier]
        # what was asked of all kinds together holds, or fails, for each
        asked = [t for t in tests if t.kind in (kind, "")] if kind in sampled else []
        checks = [
            NoiseCheck(name=t.name, passed=t.passed, text=t.text, failure_rate=t.failure_rate) for t in asked
        ]
        records.append(record_kind(kind, checks, own, delta, missing))
    return records


def bound_below(
    kind: str, samples: Sequence[NoiseSample], releases: Sequence[Release], delta: float
) -> float | None:
    """The least epsilon of a kind's Gaussian noise, as large as it can be by what was measured of it.

    The standard deviation of n normal numbers is at most sqrt(sum of squares / chi-squared quantile), with
    confidence `CONFIDENCE`. Independent coins are taken as the ledger states them. None where no lower end of the
    cost of the releases is known.
    """
    own = [r for r in releases if r.kind == kind]
    units = np.concatenate([s.units for s in samples if s.line.kind == kind] or [np.zeros(0)])
    if any(r.mechanism != "gaussian" or r.sampling not in ("none", "poisson") for r in own) or not len(units):
        return None
    more = math.sqrt(float(units @ units) / float(scipy.stats.chi2.ppf(1 - CONFIDENCE, len(units))))
    claim = find_claim([replace(r, noise_std=r.noise_std * more) for r in own], delta)
    if not any(term.sampled for term in claim.counts):
        return rounded_down(claim.epsilon)
    with suppress(ArithmeticError, ValueError):  # past its range it says nothing
        return rounded_down(prv.bound(claim.counts, delta).lower or 0.0)
    return None


def record_no_test(releases: Sequence[Release], delta: float, reason: str) -> list[NoiseAuditRecord]:
    """A record for each kind in `releases`, of which nothing was tested for this reason."""
    kinds = dict.fromkeys(r.kind for r in releases if r.noise_multiplier)
    own = {kind: [r for r in releases if r.kind == kind and r.noise_multiplier] for kind in kinds}
    return [record_kind(kind, (), own[kind], delta, reason) for kind in kinds]


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
        single=rounded_up(Auto().epsilon([line], delta).epsilon),
        releases=claim.releases,
        composed=rounded_up(claim.epsilon),
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
    tried = sum(not c.text.startswith("not tried") for c in checks)
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
