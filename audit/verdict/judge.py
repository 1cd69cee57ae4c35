"""Judging: evidence and policy in; outcome, severity and reason out. Doubt never helps the audited.

* A negative control that fires (the "leak" is found in data nobody trained on) makes any result
  inconclusive: the attack finds leaks where there are none.
* A rule that holds makes it demonstrated, whatever else was missed.
* Otherwise the attack must have found its planted leak, and must have had the trials to show a small
  one, before "not demonstrated" may be said; else it is inconclusive.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from audit.verdict.policy import Condition, Policy, Rule, Statistic
from reports.result import Budget, Outcome, Severity

# An effect that a two-sided 95 % interval excludes from the baseline in 80 % of repetitions is
# (1.960 + 0.842) / 1.960 half-widths large (normal approximation).
POWER_FACTOR = 1.43


class Blind(Protocol):
    """A blind adversary's number, of attacks.attack or reports.result."""

    @property
    def value(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float] | None: ...


class Measured(Protocol):
    """Evidence, of attacks.attack or reports.result."""

    @property
    def measure(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def unit(self) -> str: ...
    @property
    def interval(self) -> tuple[float, float] | None: ...
    @property
    def baselines(self) -> Sequence[Blind]: ...
    @property
    def control(self) -> str: ...
    @property
    def condition(self) -> Mapping[str, float | str]: ...
    @property
    def higher_is_worse(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Verdict:
    outcome: Outcome
    severity: Severity
    reason: str  # one or two sentences, citing the rule
    rule: str = ""  # its id; empty where none held
    where: str = ""  # the group of the curve that was worst: "n = 1"


def judge(evidence: Sequence[Measured], policy: Policy) -> Verdict:
    """What one attack's evidence means. Controls are read, never graded."""
    real = [e for e in evidence if e.control == "none"]
    negative = [e for e in evidence if e.control == "negative"]
    positive = [e for e in evidence if e.control == "positive"]
    fired = _worst(negative, policy)
    if fired:
        return _inconclusive(
            "The negative control fired: the attack finds leaks where there are none "
            f"(rule {fired[0].id}), so its result says nothing."
        )
    if found := _worst(real, policy):
        rule, where = found
        place = f" at {where}" if where else ""
        return Verdict(
            outcome=Outcome.DEMONSTRATED,
            severity=rule.severity,
            rule=rule.id,
            where=where,
            reason=f"Rule {rule.id} of policy {policy.name} {policy.version}{place}: "
            f"{rule.words()}. {' '.join(rule.reason.split())}",
        )
    if not real:
        return _inconclusive("The attack measured nothing that could be graded.")
    if not positive:
        return _inconclusive("No planted leak was tried, so nothing shows that the attack works.")
    if not any(_finds(e) for e in positive):
        return _inconclusive("The attack missed its planted leak, so finding nothing means nothing.")
    smallest = min((detectable(e) for e in real), default=math.inf)
    if smallest > policy.power.largest_detectable:
        could = "no leak" if math.isinf(smallest) else f"no leak below {smallest:.2g}"
        return _inconclusive(
            f"Nothing was found, but with so few trials {could} of what guessing leaves could have "
            f"been shown; the policy asks for {policy.power.largest_detectable:g}."
        )
    return Verdict(
        outcome=Outcome.NOT_DEMONSTRATED,
        severity=Severity.NONE,
        reason="The attack found its planted leak and nothing beyond the blind adversaries here; "
        f"it could have shown a leak of {smallest:.2g} of what guessing leaves.",
    )


def judge_bound(budget: Budget, policy: Policy) -> Verdict:
    """What an accountant's bound means. A bound is proved, so a rule that holds is demonstrated."""
    if budget.inconclusive:
        return _inconclusive("The accountant ran past its cap of time or memory.")
    for rule in policy.worst_first():
        if all(c.measure == "epsilon_upper" and c.holds(budget.epsilon_upper) for c in rule.all):
            return Verdict(
                outcome=Outcome.DEMONSTRATED,
                severity=rule.severity,
                rule=rule.id,
                reason=f"Rule {rule.id} of policy {policy.name} {policy.version}: {rule.words()}. "
                f"{' '.join(rule.reason.split())}",
            )
    return Verdict(
        outcome=Outcome.NOT_DEMONSTRATED,
        severity=Severity.NONE,
        reason="No rule of the policy finds this bound too large.",
    )


def statistic(e: Measured, name: Statistic) -> float:
    """The end of the interval that is least favourable to the attack; NaN where it has none.

    For residual_risk and excess the two intervals are combined as independent estimates (MOVER: Zou,
    Donner. Stat. Med. 27, 2008, eq. 3), against the strongest blind adversary.
    """
    if e.interval is None or not math.isfinite(e.value):
        return math.nan
    low, high = e.interval
    sign = 1.0 if e.higher_is_worse else -1.0
    value, end = sign * e.value, sign * (low if e.higher_is_worse else high)
    if name == "value":
        return sign * end if e.higher_is_worse else math.nan
    if not e.baselines:
        return math.nan
    ends = []
    for b in e.baselines:
        blind = sign * b.value
        if b.interval is None:
            blind_end = blind
        else:
            blind_end = sign * (b.interval[1] if e.higher_is_worse else b.interval[0])
        a, c = max(0.0, value - end), max(0.0, blind_end - blind)
        if name == "excess":
            ends.append(value - blind - math.hypot(a, c))
        elif blind < 1 and e.higher_is_worse:
            left = 1 - blind
            ends.append((value - blind) / left - math.hypot(a / left, c * (1 - value) / left**2))
        else:
            ends.append(math.nan)  # guessing is always right: nothing is left to risk
    return min(ends) if not any(math.isnan(x) for x in ends) else math.nan


def detectable(e: Measured) -> float:
    """The smallest leak that this evidence could probably have shown, as a residual risk.

    Infinity for evidence that no interval or no baseline goes with, and for likeness of images
    (dB, index), of which there is no share to take.
    """
    if e.interval is None or not e.baselines or (e.unit != "fraction" and e.measure != "auc"):
        return math.inf
    blind = max(b.value for b in e.baselines)
    if blind >= 1 or not e.higher_is_worse:
        return math.inf
    half = max(e.value - e.interval[0], e.interval[1] - e.value)
    return POWER_FACTOR * half / (1 - blind)


def _finds(e: Measured) -> bool:
    """Whether a positive control was found: clear of every blind adversary."""
    return statistic(e, "excess") > 0


def _worst(evidence: Iterable[Measured], policy: Policy) -> tuple[Rule, str] | None:
    """The severest rule that holds in one group of the curve, and that group's name."""
    groups: dict[str, list[Measured]] = {}
    for e in evidence:
        groups.setdefault(_place(e), []).append(e)
    for rule in policy.worst_first():
        for place, members in groups.items():
            if all(any(_meets(c, e) for e in members) for c in rule.all):
                return rule, place
    return None


def _meets(condition: Condition, e: Measured) -> bool:
    if not fnmatchcase(e.measure, condition.measure):
        return False
    if condition.units and e.unit not in condition.units:
        return False
    return condition.holds(statistic(e, condition.statistic))  # NaN holds nothing


def _place(e: Measured) -> str:
    return ", ".join(f"{k} = {v if isinstance(v, str) else format(v, 'g')}" for k, v in e.condition.items())


def _inconclusive(reason: str) -> Verdict:
    return Verdict(outcome=Outcome.INCONCLUSIVE, severity=Severity.NONE, reason=reason)
