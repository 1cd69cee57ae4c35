"""What is known of each bound: the accountants' numbers with what the verifier, tests and the replay say of them.

refuted   the verifier, a test of the noise, a replay or another accountant speaks against it
none      something that depends on the data is released in clear, or no accountant could bound it
declared  something that it needs could not be checked, or nothing was tried
verified  the rest: the ledger was made once more, and nothing that was tried is a counterexample
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedaudit.audit.accounting.accountant import seen_as
from fedaudit.audit.accounting.budget import SEES, SpentBudget, towards
from fedaudit.audit.accounting.verify import Verified
from fedaudit.fl.ledger import Release, Unit
from fedaudit.reports.bound import PrivacyBound, Reason, Status
from fedaudit.reports.format import number
from fedaudit.reports.result import NoiseAuditRecord

UNTRIED = "nothing was tried against it: neither a replay nor a test of the noise ran"
UNVERIFIED = "nobody could make the lines of its ledger once more"


@dataclass(frozen=True, kw_only=True)
class BoundCheck:
    """Whether a bound towards one observer, for one unit, stands up to the run itself."""

    observer: str  # "server", "another client" or "public"
    unit: Unit
    status: Status
    reason: str  # a sentence
    place: str = ""  # where it fails
    round: int | None = None
    pair: str = ""  # the neighbouring federations that show it
    ratio: float | None = None  # distance over what the ledger declares
    pairs: int = 0  # how many were tried


def decline(releases: Sequence[Release], reason: str) -> list[BoundCheck]:
    """Checks of a federation that cannot be played: what it declares stays declared, for this reason."""
    return [
        find_clear(observer, unit, releases)
        or BoundCheck(observer=observer, unit=unit, status=Status.DECLARED, reason=reason)
        for observer, unit in list_bounds(releases)
    ]


def find_clear(observer: str, unit: Unit, lines: Sequence[Release]) -> BoundCheck | None:
    """The check of a bound that a line without noise leaves none of; None where there is no such line."""
    adjacency, groups = towards(observer, lines, unit)
    seen = (seen_as(r, unit, adjacency) for group in groups.values() for r in group)
    line = next((r for r in seen if not r.noise_multiplier), None)
    if line is None:
        return None
    reason = f"{line.kind} of {line.sender} is released in clear."
    return BoundCheck(observer=observer, unit=unit, status=Status.NONE, reason=reason)


def list_bounds(releases: Sequence[Release]) -> list[tuple[str, Unit]]:
    """Of whom a replay says something: every observer, for each unit that the noise speaks of."""
    return [(observer, unit) for observer in SEES for unit in list_units(releases)]


def list_units(releases: Sequence[Release]) -> list[Unit]:
    """The units that the noise speaks of."""
    return sorted({r.unit for r in releases if r.noise_multiplier})


class NoiseResult(NamedTuple):
    """One test of the noise on one kind; `passed` is None where the noise could not be tested."""

    kind: str
    name: str
    passed: bool | None
    text: str


def list_results(audits: Sequence[NoiseAuditRecord]) -> list[NoiseResult]:
    """The tests of noise audits, and of a kind that was not tested the reason."""
    found: list[NoiseResult] = []
    for a in audits:
        found += [NoiseResult(a.kind, c.name, c.passed, c.text) for c in a.checks]
        if a.not_audited:
            found.append(NoiseResult(a.kind, "", None, a.not_audited))
    return found


def combine_status(
    budgets: Sequence[SpentBudget],
    verified: Verified,
    bound_checks: Sequence[BoundCheck],
    noise_tests: Sequence[NoiseResult],
    population: Mapping[str, str] | None = None,
) -> list[PrivacyBound]:
    """One bound for each budget, in their order, with what is known of it.

    `bound_checks` are of the replay, `noise_tests` of the noise that was drawn; both may be empty, and then no
    bound is verified. `population` says of whom a bound of each unit speaks.
    """
    return [_combine(b, verified, bound_checks, noise_tests, (population or {}).get(b.unit, "")) for b in budgets]


def _combine(
    budget: SpentBudget,
    verified: Verified,
    bound_checks: Sequence[BoundCheck],
    noise_tests: Sequence[NoiseResult],
    population: str,
) -> PrivacyBound:
    checks = _select_checks(bound_checks, budget)
    tests = [t for t in noise_tests if t.kind in budget.kinds]
    against = list(_list_failures(budget, verified, checks, tests))
    missing = list(_list_missing(budget, checks))
    doubts = list(_list_doubts(budget, verified, checks, tests))
    status, reasons = Status.VERIFIED, list[Reason]()
    if missing:
        status, reasons = Status.NONE, [*missing, *against]
    elif against:
        status, reasons = Status.REFUTED, _list_contradictions(budget, against)
    elif doubts:
        status, reasons = Status.DECLARED, doubts
    holds = status in (Status.VERIFIED, Status.DECLARED)
    return PrivacyBound(
        observer=budget.observer,
        unit=budget.unit,
        adjacency=budget.adjacency,
        delta=budget.delta,
        epsilon=budget.epsilon_upper if holds else math.inf,
        status=status,
        reasons=reasons,
        accountant=budget.accountant,
        replaced=budget.replaced if holds else None,
        uncredited=budget.uncredited if holds else "",
        releases=budget.releases,
        colluders=budget.colluders,
        population=population,
        pairs=sum(c.pairs for c in checks),
        tests=sum(t.passed is not None for t in tests),
        assumes=budget.assumes if holds else "",
        note=budget.note if not against and (holds or math.isinf(budget.epsilon_upper)) else "",
    )


def _select_checks(checks: Sequence[BoundCheck], budget: SpentBudget) -> list[BoundCheck]:
    """Those of its observer and unit. A record is a part of what its client sent, and a person is its records.

    So what refutes noise for clients refutes it for records; and a bound per record of which no play was made
    rests on noise for clients, and is known as well as that.
    """
    seen = [c for c in checks if c.observer == budget.observer]
    of = "record" if budget.unit == "person" else budget.unit
    own = [c for c in seen if c.unit == of]
    return own + [c for c in seen if c.unit == "client" != of and (not own or c.status is Status.REFUTED)]


def _list_missing(budget: SpentBudget, checks: Sequence[BoundCheck]) -> Iterator[Reason]:
    """Why there is no epsilon."""
    for c in checks:
        if c.status is Status.NONE and math.isfinite(budget.epsilon_upper):
            yield _make_reason(c)
    if math.isfinite(budget.epsilon_upper):
        return
    for kind in budget.spoiled_by:
        yield Reason(source="ledger", sentence=f"{kind.replace('_', ' ')} is sent without noise", place=kind)
    if budget.inconclusive:
        yield Reason(source="cap", sentence=budget.note or f"{budget.accountant} did not come to an end")
    elif not budget.spoiled_by:
        why = budget.unbounded or budget.note or f"{budget.accountant} finds no limit"
        yield Reason(source="accountant", sentence=why)


def _list_failures(
    budget: SpentBudget, verified: Verified, checks: Sequence[BoundCheck], tests: Sequence[NoiseResult]
) -> Iterator[Reason]:
    """Whatever speaks against it; the replay first, which names a place and a pair."""
    yield from (_make_reason(c) for c in checks if c.status is Status.REFUTED)
    for t in tests:
        if t.passed is False:
            yield Reason(source="noise test", sentence=f"{t.name} of {t.kind} failed: {t.text}", place=t.kind)
    for issue in verified.issues:
        yield Reason(source="verifier", sentence=issue.what)
    if budget.disagrees:
        yield Reason(source="accountant", sentence=budget.disagrees)


def _list_doubts(
    budget: SpentBudget, verified: Verified, checks: Sequence[BoundCheck], tests: Sequence[NoiseResult]
) -> Iterator[Reason]:
    """What nobody could check."""
    yield from (_make_reason(c) for c in checks if c.status is Status.DECLARED)
    if verified.declared:
        yield Reason(source="verifier", sentence=UNVERIFIED)
    for what in budget.assumed:
        yield Reason(source="assumption", sentence=f"nobody could check {what}")
    untested = [t for t in tests if t.passed is None]
    for t in untested:
        yield Reason(
            source="noise test", sentence=f"the noise on {t.kind} was not tested: {t.text}", place=t.kind
        )
    if not checks and not tests:
        yield Reason(source="noise test", sentence=UNTRIED)
        return
    for kind in budget.kinds:
        if kind not in {t.kind for t in tests}:
            yield Reason(source="noise test", sentence=f"the noise on {kind} was not tested", place=kind)


def _list_contradictions(budget: SpentBudget, against: Sequence[Reason]) -> list[Reason]:
    """The reasons of a refuted bound; the first says what was declared, and nothing else does."""
    first, *others = against
    sentence = f"{number(budget.epsilon_upper)} was declared, refuted: {first.sentence}"
    return [first.model_copy(update={"sentence": sentence}), *others]


def _make_reason(check: BoundCheck) -> Reason:
    return Reason(
        source="replay",
        sentence=check.reason,
        place=check.place,
        round=check.round,
        pair=check.pair,
        ratio=check.ratio,
    )


def withhold_numbers(
    audits: Sequence[NoiseAuditRecord], bounds: Sequence[PrivacyBound]
) -> list[NoiseAuditRecord]:
    """Noise audits as a report shows them: without what the ledger allows, where that is refuted for anybody.

    What refutes it is in the audit's own sentence.
    """
    refuted = any(b.status is Status.REFUTED or _has_contradiction(b) for b in bounds)
    nothing = {"claimed": None, "single": math.inf, "composed": math.inf}
    return [a.model_copy(update=nothing) if refuted or a.refuted else a for a in audits]


def _has_contradiction(bound: PrivacyBound) -> bool:
    """Whether something speaks against the ledger of a bound that was none anyway."""
    return any(r.source in ("verifier", "noise test", "replay") for r in bound.reasons if not bound.holds)
