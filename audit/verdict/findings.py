"""Findings: what each attack and accountant left under evidence/, judged by the policy."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from attacks.evidence import Evidence
from attacks.measure import named
from audit.verdict import figures
from audit.verdict.judge import Verdict, judge, judge_bound
from audit.verdict.policy import Policy
from audit.verdict.wording import sentence, title
from reports import format as fmt
from reports.result import Budget, Coverage, Figure, Finding, Gallery, Headline, Outcome, Severity, Threat

_READ = TypeAdapter(list[Evidence])


def from_attack(found: Mapping[str, Any], policy: Policy, smallest_cell: int) -> Finding:
    """One attack's file as a finding.

    `smallest_cell` is the fewest examples of a class that any client holds. Replays of fewer show
    what the attack can do, not what it did here: they count as controls and set no severity.
    """
    card = found["card"]
    evidence = [_hypothetical(e, smallest_cell) for e in _READ.validate_python(found.get("evidence", []))]
    if found["status"] == "ran":
        verdict = judge(evidence, policy)
    else:
        outcome = Outcome(found["status"])
        verdict = Verdict(outcome=outcome, severity=Severity.NONE, reason=found["reason"])
    return Finding(
        id=found["name"].replace(":", "."),
        title=title(verdict.outcome, card["title"], card["learns"]),
        source="attack",
        method=card["title"],
        reference=card["source"],
        outcome=verdict.outcome,
        severity=verdict.severity,
        summary=_summary(evidence, verdict, found),
        reason=verdict.reason,
        threat=Threat(**card["threat"]),
        artifacts=[str(kind) for kind in card["requires"] or card["also_reads"]],
        evidence=evidence,
        does_not_show=card["does_not_show"],
        remedy=card["remedy"],
        seconds=found.get("seconds", 0.0),
    )


def _hypothetical(e: Evidence, smallest_cell: int) -> Evidence:
    n = e.condition.get("n")
    if e.control != "none" or e.condition.get("origin") != "replayed" or not isinstance(n, int | float):
        return e
    if n >= smallest_cell:
        return e
    note = f"{e.note}; no client of this federation holds so few".lstrip("; ")
    return dataclasses.replace(e, control="positive", note=note)


def _summary(evidence: Sequence[Evidence], verdict: Verdict, found: Mapping[str, Any]) -> str:
    """What was done, what came out, compared with what."""
    if verdict.outcome in (Outcome.NOT_APPLICABLE, Outcome.FAILED):
        return str(found["reason"])
    real = [e for e in evidence if e.control == "none"]
    if not real:
        return "The attack ran; only its controls could be measured."
    here = [e for e in real if e.place == verdict.where] or real
    text = f"{sentence(here[0])}."
    safest = _where_it_ends(real, here[0].measure)
    return f"{text} {safest}".strip()


def _where_it_ends(real: Sequence[Evidence], measure: str) -> str:
    """At which n the measure meets the blind adversaries, where there is a curve."""
    curve = [e for e in real if e.measure == measure and "n" in e.condition and e.interval and e.baselines]
    curve.sort(key=lambda e: float(e.condition["n"]))
    if len({e.condition["n"] for e in curve}) < 2:
        return ""
    above = [e for e in curve if e.interval and e.interval[0] > max(b.value for b in e.baselines)]
    if not above:
        return f"At no n from {curve[0].condition['n']:g} was it clear of the blind adversaries."
    last = max(above, key=lambda e: float(e.condition["n"]))
    beyond = [e for e in curve if float(e.condition["n"]) > float(last.condition["n"])]
    text = (
        f"It stays clear of every blind adversary up to n = {last.condition['n']:g} "
        f"({fmt.quantity(last.value, last.unit)})"
    )
    if beyond:
        first = beyond[0]
        text += f"; at n = {first.condition['n']:g} the {named(measure).words} no longer is"
    return text + "."


def figures_of(found: Mapping[str, Any], finding: Finding) -> list[Figure]:
    """The curves over n and the ROC of one attack."""
    return figures.by_samples(finding.id, finding.evidence) + figures.roc(finding.id, found.get("curves", []))


def galleries_of(found: Mapping[str, Any], finding: Finding) -> list[Gallery]:
    return [
        Gallery(
            finding=finding.id,
            title=g["title"],
            caption=g["caption"],
            alt=f"{g['title']}: rows of images, {', '.join(g['rows'])}",
            columns=g["columns"],
            rows=g["rows"],
        )
        for g in found.get("galleries", [])
    ]


def from_budgets(budgets: Sequence[Budget], policy: Policy) -> list[Finding]:
    """One finding a bound; observers for whom no bound holds for the same reason share one."""
    groups: dict[object, list[Budget]] = {}
    for i, b in enumerate(budgets):
        unbounded = math.isinf(b.epsilon_upper)
        grouped = unbounded and not b.inconclusive
        key = (b.accountant, b.unit, tuple(b.spoiled_by), b.unbounded) if grouped else i
        groups.setdefault(key, []).append(b)
    return [_from_bounds(found, policy, i) for i, found in enumerate(groups.values())]


def _from_bounds(budgets: Sequence[Budget], policy: Policy, number: int) -> Finding:
    budget = budgets[0]
    verdict = judge_bound(budget, policy)
    articles = [b.observer if b.observer.startswith("another") else f"the {b.observer}" for b in budgets]
    who = " or ".join(articles)
    if budget.inconclusive:
        what = f"Whether a differential-privacy bound holds towards {who} is open"
        summary = f"{budget.accountant} did not come to an end; the loss may well be bounded."
        limit = "That no bound was found says nothing about whether one exists."
        remedy = "Give the accountant more time or memory, or use `auto`."
    elif math.isinf(budget.epsilon_upper):
        spoilers = budget.spoiled_by
        what = f"No differential-privacy bound holds towards {who}"
        why = f"{', '.join(spoilers)} {'is' if len(spoilers) == 1 else 'are'} released without noise"
        summary = f"No bound for a {budget.unit}: {why if spoilers else budget.unbounded}."
        limit = "A bound limits every attack; that there is none demonstrates no leak."
        remedy = "Withhold what is released in clear, or protect it with `dp_gaussian`."
    else:
        what = f"Towards {who} the run is ({budget.epsilon_upper:g}, {budget.delta:g})-DP per {budget.unit}"
        summary = f"Assuming: {budget.assumes}. Adjacency: {budget.adjacency.replace('_', ' ')}."
        limit = "The bound holds only while its assumptions do."
        remedy = "More noise, or fewer rounds, lowers it."
    return Finding(
        id=f"dp-{number}-{budget.observer.replace(' ', '-')}-{budget.unit}",
        title=what,
        source="accountant",
        method=budget.accountant,
        outcome=verdict.outcome,
        severity=verdict.severity,
        summary=f"{summary} {budget.note}".strip(),
        reason=verdict.reason,
        does_not_show=limit,
        remedy=remedy,
    )


def headline(findings: Sequence[Finding]) -> Headline:
    """The worst demonstrated finding, and how much of what applies was really looked at."""
    attacks = [f for f in findings if f.source == "attack"]
    tally = {o: sum(f.outcome == o for f in attacks) for o in Outcome}
    coverage = Coverage(
        ran=tally[Outcome.DEMONSTRATED] + tally[Outcome.NOT_DEMONSTRATED] + tally[Outcome.INCONCLUSIVE],
        applicable=len(attacks) - tally[Outcome.NOT_APPLICABLE],
        not_applicable=tally[Outcome.NOT_APPLICABLE],
        inconclusive=tally[Outcome.INCONCLUSIVE],
        failed=tally[Outcome.FAILED],
    )
    shown = [f for f in findings if f.outcome == Outcome.DEMONSTRATED]
    if shown:
        # An attack that was seen to work says more than a bound that does not exist
        worst = max(shown, key=lambda f: (f.severity.rank, f.source == "attack"))
        return Headline(
            severity=worst.severity,
            outcome=worst.outcome,
            sentence=f"{worst.title}. {worst.summary}",
            coverage=coverage,
        )
    if tally[Outcome.NOT_DEMONSTRATED] and not tally[Outcome.INCONCLUSIVE] and not tally[Outcome.FAILED]:
        text = "No leak was demonstrated by the attacks that ran. That is not a proof of privacy."
        return Headline(
            severity=Severity.NONE, outcome=Outcome.NOT_DEMONSTRATED, sentence=text, coverage=coverage
        )
    text = (
        "The audit is inconclusive: no leak was demonstrated, and not every attack could have shown one."
        if coverage.applicable
        else "The audit is inconclusive: no attack was tried on what this federation sends."
    )
    return Headline(severity=Severity.NONE, outcome=Outcome.INCONCLUSIVE, sentence=text, coverage=coverage)
