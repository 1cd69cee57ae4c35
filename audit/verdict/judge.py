"""Judging: what was found and a policy in; a finding out. Doubt never helps the audited.

* A negative control (the same search in data nobody trained on) is one more baseline, and silences nothing.
* A rule that holds makes it demonstrated, whatever else was missed.
* Replays set no severity by themselves (audit/verdict/replays.py). Where they disagree with what clients sent,
  the attack does not model the method, and finding nothing means nothing.
* A fact (a bound, a flaw, a refuted claim) that meets no rule is not demonstrated.
* Evidence that is clear of its baselines and meets no rule is inconclusive, whatever it measures.
* Other evidence must come from an attack that found its planted leak before "not demonstrated" may be said; else
  it is inconclusive. Leaks that are planted without the run's protections show whether an attack works.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from fedaudit.attacks import measure
from fedaudit.attacks.evidence import UNPROTECTED, Baseline, Evidence
from fedaudit.audit.verdict.people import ALONE
from fedaudit.audit.verdict.policy import Condition, GradingPolicy, Rule, load_policy
from fedaudit.audit.verdict.replays import (
    describe_disagreement,
    describe_misses,
    find_sent,
    is_replay,
    settle_controls,
)
from fedaudit.audit.verdict.statistics import clear, statistic
from fedaudit.reports.result import Finding, Outcome, Severity


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What is proved or seen rather than measured; conditions read its value, controls do not exist."""

    measure: str  # "lint_L3", "accountants_disagree", "claim_refuted"
    value: float


@dataclass(frozen=True, kw_only=True)
class Words:
    """How a verdict speaks of what was looked for."""

    unplanted: str = "No planted leak was tried, so nothing shows that the attack works."
    missed: str = "The attack missed its planted leak, so finding nothing means nothing."
    found: str = "The attack found its planted leak and nothing beyond the baselines here"
    more: str = "More than guessing gives was found"


LEAK = Words()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    outcome: Outcome
    severity: Severity = Severity.NONE
    reason: str = ""  # one or two sentences, citing the rule
    rule: str = ""  # its id; empty where none held
    where: str = ""  # the place of the curve that was worst: "n = 1"
    # what met the rule, in the order of its conditions, on what clients sent where replays met it; none of facts
    by: tuple[Evidence, ...] = ()


class Subject(ABC):
    """Something that was looked into: what was found there, and the words of a finding about it."""

    speaks = LEAK

    @property
    @abstractmethod
    def found(self) -> Sequence[Evidence] | Sequence[Fact]:
        """What the policy grades."""

    @property
    def not_gradable(self) -> Verdict | None:
        """The verdict where there is nothing to grade: it did not apply, failed, or ran out of time."""
        return None

    @abstractmethod
    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        """The fields of the Finding but for outcome, severity and reason."""


def judge_subject(subject: Subject, policy: GradingPolicy) -> Finding:
    """The finding about one subject: the only way to one."""
    verdict = subject.not_gradable or judge(subject.found, policy, subject.speaks)
    return Finding(
        outcome=verdict.outcome,
        severity=verdict.severity,
        reason=verdict.reason,
        rule=verdict.rule,
        where=verdict.where,
        **subject.words(verdict),
    )


def judge(found: Sequence[Evidence] | Sequence[Fact], policy: GradingPolicy, speaks: Words = LEAK) -> Verdict:
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
    evidence = settle_controls([e for e in found if isinstance(e, Evidence)])
    real, negative, positive = ([e for e in evidence if e.control == c] for c in ("none", "negative", "positive"))
    positive += [e for e in real if is_replay(e)]  # graded, and still the auditor's own
    real = [_add_control(e, negative) for e in real]
    if held := _worst(real, policy, evidence):
        return held
    if not real:
        return _inconclusive(
            "The attack measured nothing that clients sent, and replays alone are never graded."
            if any(map(is_replay, positive))
            else "The attack measured nothing that could be graded."
        )
    if difference := describe_disagreement(evidence):
        return _inconclusive(f"The attack does not model what this method sends: {difference}.")
    bare = [e for e in positive if e.condition.get("origin") == UNPROTECTED]
    if not (bare or positive):
        return _inconclusive(speaks.unplanted)
    if not any(clear(e) for e in bare or positive):
        return _inconclusive(speaks.missed)
    # beyond the baselines, and too little for any rule, or of a measure that none grades
    if more := [e for e in real if not is_replay(e) and clear(e)]:
        best = most_telling(more)
        words = measure.find_measure(best.measure).words
        reason = f"{speaks.more} ({words}), which no rule of policy {policy.name} grades."
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason, by=(best,))
    return Verdict(outcome=Outcome.NOT_DEMONSTRATED, reason=f"{speaks.found}.{describe_misses(bare or positive)}")


def _add_control(e: Evidence, negative: Sequence[Evidence]) -> Evidence:
    """The same beside its negative controls, each of which is one more baseline.

    Fewer than `ALONE` trials decide nothing: they are pooled with those of the baselines, where they got more.
    """
    alike = [c for c in negative if c.measure == e.measure and not math.isnan(c.value)]
    sign = 1.0 if e.higher_is_worse else -1.0
    baselines = list(e.baselines)
    for c in alike:
        if c.trials >= ALONE:
            baselines.append(Baseline(name=f"control ({c.note})", value=c.value, interval=c.interval))
        elif c.trials and e.trials:
            weight = c.trials / (c.trials + e.trials)
            baselines = [_raise(b, max(0.0, sign * (c.value - b.value)) * weight * sign) for b in baselines]
    return replace(e, baselines=tuple(baselines))


def _raise(b: Baseline, by: float) -> Baseline:
    ends = b.interval and (b.interval[0] + by, b.interval[1] + by)
    return replace(b, value=b.value + by, interval=ends)


def _worst(
    found: Iterable[Evidence | Fact], policy: GradingPolicy, every: Sequence[Evidence] = ()
) -> Verdict | None:
    """The severest rule that holds in one place of the curve, where that is worst; None where none does.

    How bad a place is, the first condition of the rule says; of equal ones the first is taken.

    `every`: all evidence, where what clients sent stands that is quoted in the place of replays.
    """
    places: dict[str, list[Evidence | Fact]] = {}
    for e in found:
        places.setdefault(e.place if isinstance(e, Evidence) else "", []).append(e)
    for rule in policy.worst_first():
        held: dict[str, list[list[Evidence | Fact]]] = {}
        for place, here in places.items():
            met = [[e for e in here if _meets(c, e)] for c in rule.all]
            if all(met):
                held[place] = met
        if held:
            # of equal ones, the first
            place = max(held, key=lambda p: max(_read(rule.all[0], e) for e in held[p][0]))
            quoted = _quote([e for e in one if isinstance(e, Evidence)] for one in held[place])
            return _apply_rule(rule, place, [find_sent(e, every) for e in quoted], policy)
    return None


def _apply_rule(rule: Rule, place: str, quoted: Sequence[Evidence], policy: GradingPolicy) -> Verdict:
    place = quoted[0].place if quoted else place
    at = f" at {place}" if place else ""
    return Verdict(
        outcome=Outcome.DEMONSTRATED,
        severity=rule.severity,
        rule=rule.id,
        where=place,
        reason=f"Rule {rule.id} of policy {policy.name} {policy.version}{at}: "
        f"{rule.words()}. {' '.join(rule.reason.split())}",
        by=tuple(quoted),
    )


def _quote(met: Iterable[Sequence[Evidence]]) -> tuple[Evidence, ...]:
    """The most telling of what met each condition; one that met several is quoted once."""
    best = [most_telling(some) for some in met if some]
    return tuple({id(e): e for e in best}.values())


def most_telling(evidence: Sequence[Evidence]) -> Evidence:
    """Of the measure that tells a reader most, the first."""
    (name,) = measure.telling((e.measure for e in evidence), 1)
    return next(e for e in evidence if e.measure == name)


def _read(condition: Condition, e: Evidence | Fact) -> float:
    """What a condition reads of one result."""
    return e.value if isinstance(e, Fact) else statistic(e, condition.statistic)


def _meets(condition: Condition, e: Evidence | Fact) -> bool:
    if isinstance(e, Fact):
        return _names(condition, e) and condition.holds(_read(condition, e))
    if not fnmatchcase(e.measure, condition.measure):
        return False
    if condition.units and e.unit not in condition.units:
        return False
    return condition.holds(_read(condition, e))  # NaN holds nothing


def _names(condition: Condition, fact: Fact) -> bool:
    """Whether a condition is about this fact; patterns for attacks such as `*` are not."""
    return condition.measure[:1] not in ("*", "?", "[") and fnmatchcase(fact.measure, condition.measure)


def _inconclusive(reason: str) -> Verdict:
    return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)
