"""Judging: what was found and a policy in; a finding out. Doubt never helps the audited.

* A negative control that fires (the "leak" is found in data nobody trained on) makes any result
  inconclusive: the attack finds leaks where there are none.
* A rule that holds makes it demonstrated, whatever else was missed.
* A fact (a bound, a flaw, a refuted claim) that meets no rule is not demonstrated.
* Evidence that meets none must come from an attack that found its planted leak, and that had the trials to
  show a small one, before "not demonstrated" may be said; else it is inconclusive.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from attacks import measure, stats
from attacks.evidence import Evidence
from audit.verdict.policy import Condition, Policy, Rule, Statistic, load_policy
from reports.result import Finding, Outcome, Severity


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What is proved or seen rather than measured; conditions read its value, controls do not exist."""

    measure: str  # "epsilon_upper", "lint_L3", "accountants_disagree", "claim_refuted"
    value: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    outcome: Outcome
    severity: Severity = Severity.NONE
    reason: str = ""  # one or two sentences, citing the rule
    rule: str = ""  # its id; empty where none held
    where: str = ""  # the place of the curve that was worst: "n = 1"
    by: tuple[Evidence, ...] = ()  # what met the rule, in the order of its conditions; none of facts


class Subject(ABC):
    """Something that was looked into: what was found there, and the words of a finding about it."""

    @property
    @abstractmethod
    def found(self) -> Sequence[Evidence] | Sequence[Fact]:
        """What the policy grades."""

    @property
    def unsettled(self) -> Verdict | None:
        """The verdict where there is nothing to grade: it did not apply, failed, or ran out of time."""
        return None

    @abstractmethod
    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        """The fields of the Finding but for outcome, severity and reason."""


def judged(subject: Subject, policy: Policy) -> Finding:
    """The finding about one subject: the only way to one."""
    verdict = subject.unsettled or judge(subject.found, policy)
    return Finding(
        outcome=verdict.outcome, severity=verdict.severity, reason=verdict.reason, **subject.words(verdict)
    )


def judge(found: Sequence[Evidence] | Sequence[Fact], policy: Policy) -> Verdict:
    """What evidence or facts of one subject mean. Controls are read, never graded.

    A fact that the policy has no rule about at all is graded by the default policy: leaving out the rules
    about flaws and bounds does not make a run clean.
    """
    facts = [f for f in found if isinstance(f, Fact)]
    if facts:
        if not any(_names(c, f) for r in policy.rules for c in r.all for f in facts):
            policy = load_policy("default")
        return _worst(facts, policy) or Verdict(
            outcome=Outcome.NOT_DEMONSTRATED,
            reason=f"No rule of policy {policy.name} {policy.version} finds it too large.",
        )
    evidence = [e for e in found if isinstance(e, Evidence)]
    real, negative, positive = ([e for e in evidence if e.control == c] for c in ("none", "negative", "positive"))
    if fired := _worst(negative, policy):
        return _inconclusive(
            "The negative control fired: the attack finds leaks where there are none "
            f"(rule {fired.rule}), so its result says nothing."
        )
    if held := _worst(real, policy):
        return held
    if not real:
        return _inconclusive("The attack measured nothing that could be graded.")
    if not positive:
        return _inconclusive("No planted leak was tried, so nothing shows that the attack works.")
    if not any(clear(e) for e in positive):
        return _inconclusive("The attack missed its planted leak, so finding nothing means nothing.")
    smallest = min(detectable(e) for e in real)
    if smallest > policy.power.largest_detectable:
        could = "no leak" if math.isinf(smallest) else f"no leak below {smallest:.2g}"
        return _inconclusive(
            f"Nothing was found, but with so few trials {could} of what guessing leaves could have "
            f"been shown; the policy asks for {policy.power.largest_detectable:g}."
        )
    return Verdict(
        outcome=Outcome.NOT_DEMONSTRATED,
        reason="The attack found its planted leak and nothing beyond the blind adversaries here; "
        f"it could have shown a leak of {smallest:.2g} of what guessing leaves.",
    )


def statistic(e: Evidence, name: Statistic) -> float:
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


def clear(e: Evidence) -> bool:
    """Whether it is clear of every blind adversary."""
    return statistic(e, "excess") > 0


def detectable(e: Evidence) -> float:
    """The smallest leak that this evidence would probably have shown, as a residual risk.

    Infinity for evidence that no interval or no baseline goes with, and for likeness of images
    (dB, index), of which there is no share to take.
    """
    if e.interval is None or e.strongest is None or e.unit != "fraction" or not e.higher_is_worse:
        return math.inf
    alpha = stats.corrected(1 - e.confidence, e.looks)
    return stats.detectable(e.value, e.interval, e.strongest.value, alpha)


def _worst(found: Iterable[Evidence | Fact], policy: Policy) -> Verdict | None:
    """The severest rule that holds in one place of the curve; None where none does."""
    places: dict[str, list[Evidence | Fact]] = {}
    for e in found:
        places.setdefault(e.place if isinstance(e, Evidence) else "", []).append(e)
    for rule in policy.worst_first():
        for place, here in places.items():
            met = [[e for e in here if _meets(c, e)] for c in rule.all]
            if all(met):
                return _held(rule, place, met, policy)
    return None


def _held(rule: Rule, place: str, met: Sequence[Sequence[Evidence | Fact]], policy: Policy) -> Verdict:
    at = f" at {place}" if place else ""
    return Verdict(
        outcome=Outcome.DEMONSTRATED,
        severity=rule.severity,
        rule=rule.id,
        where=place,
        reason=f"Rule {rule.id} of policy {policy.name} {policy.version}{at}: "
        f"{rule.words()}. {' '.join(rule.reason.split())}",
        by=tuple(
            most_telling([e for e in one if isinstance(e, Evidence)])
            for one in met
            if any(isinstance(e, Evidence) for e in one)
        ),
    )


def most_telling(evidence: Sequence[Evidence]) -> Evidence:
    """Of the measure that tells a reader most, the first."""
    (name,) = measure.telling((e.measure for e in evidence), 1)
    return next(e for e in evidence if e.measure == name)


def _meets(condition: Condition, e: Evidence | Fact) -> bool:
    if isinstance(e, Fact):
        return _names(condition, e) and condition.holds(e.value)
    if not fnmatchcase(e.measure, condition.measure):
        return False
    if condition.units and e.unit not in condition.units:
        return False
    return condition.holds(statistic(e, condition.statistic))  # NaN holds nothing


def _names(condition: Condition, fact: Fact) -> bool:
    """Whether a condition is about this fact; patterns for attacks such as `*` are not."""
    return condition.measure[:1] not in ("*", "?", "[") and fnmatchcase(fact.measure, condition.measure)


def _inconclusive(reason: str) -> Verdict:
    return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)
