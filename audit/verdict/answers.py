"""How sure an audit is: the questions that whoever signs asks, answered from what ran."""

from collections.abc import Sequence

from fedaudit.audit.verdict.limits import count_answered, name_questions
from fedaudit.audit.verdict.statistics import clear
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status, group_observers
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import Answer
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult, Finding, Outcome

MOST_NAMES = 4  # of one answer
MOST_BOUNDS = 2
EVIDENCE, ASKED, SCOPE = "Evidence by finding", "What was asked", "What was audited"


def answers(result: AuditResult) -> list[Answer]:
    """In the order in which they are asked."""
    ran = [
        f
        for f in result.findings
        if f.source == "attack" and f.outcome not in (Outcome.NOT_APPLICABLE, Outcome.FAILED)
    ]
    return [
        Answer(question="Do the attacks work at all?", answer=_planted(ran), where=EVIDENCE),
        Answer(question="Do they cry wolf?", answer=_blind(ran), where=EVIDENCE),
        Answer(question="What was left open?", answer=_open(result), where=ASKED),
        Answer(question="What was not asked?", answer=_untried(result), where=ASKED),
        Answer(question="Who might misbehave?", answer=_conduct(ran, result), where=SCOPE),
        Answer(
            question="Is there a mathematical limit?", answer=_bound(result), where="Differential privacy budget"
        ),
        Answer(question="Will it hold for our data?", answer=_data(result), where=SCOPE),
    ]


def _planted(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "positive" for e in f.evidence)]
    if not tried:
        return "Not shown: no leak was planted for any attack."
    found = [f for f in tried if any(clear(e) for e in f.evidence if e.control == "positive")]
    lost = [f.id for f in tried if f not in found]
    text = f"{len(found)} of {fmt.plural(len(tried), 'attack')} found the leak that was planted for it"
    rest = f"; not {', '.join(lost)}" if lost else ""
    none = f"; for {len(ran) - len(tried)} none was planted" if len(ran) > len(tried) else ""
    return f"{text}{rest}{none}."


def _blind(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "negative" for e in f.evidence)]
    if not tried:
        return "Not known: no attack was pointed at data that nobody trained on."
    fired = [f.id for f in tried if f.outcome is Outcome.INCONCLUSIVE and "control fired" in f.reason]
    text = f"{fmt.plural(len(tried), 'attack was', 'attacks were')} pointed at data that nobody trained on"
    return f"{text}; {', '.join(fired)} found a leak there." if fired else f"{text}; none found a leak there."


def _open(result: AuditResult) -> str:
    left = [q for q in result.questions if q.is_open]
    if not left:
        return "No required question." if result.questions else "Everything: nothing was asked."
    return f"{fmt.plural(len(left), 'required question')}: {_shorten(name_questions(left))}."


def _untried(result: AuditResult) -> str:
    """What no attack asked: those that were left out, and those that fedaudit lacks."""
    left = [q for q in result.questions if q.state is State.NOT_ASKED]
    lacking = [q for q in result.questions if q.state is State.NO_ATTACK]
    parts = [f"Not asked: {_shorten(name_questions(left))}."] if left else []
    parts += [f"No attack exists for: {_shorten(name_questions(lacking))}."] if lacking else []
    if not result.questions:
        parts = ["Nothing was asked."]
    text = " ".join(parts) or f"{count_answered(result.questions)}; an attack asked each of the others."
    return text if result.robustness else f"{text} No client tried to harm the model."


def _shorten(names: Sequence[str]) -> str:
    more = f"; and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return "; ".join(names[:MOST_NAMES]) + more


def _conduct(ran: Sequence[Finding], result: AuditResult) -> str:
    threats = [f.threat for f in ran if f.threat]
    bad = list(dict.fromkeys(t.position.replace("_", " ") for t in threats if t.conduct == "malicious"))
    text = "No attack ran."
    if ran:
        text = f"Attacks by a malicious {', '.join(bad)} ran." if bad else "Only passive attackers were tested."
    return f"{text} Malicious clients attacked the model." if result.robustness else text


def _bound(result: AuditResult) -> str:
    if not result.bounds:
        return "Unknown: no accountant was run."
    shown = group_observers([b for b in result.bounds if b.holds])[:MOST_BOUNDS]
    refuted = [b for b in result.bounds if b.status is Status.REFUTED]
    text = [
        f"Towards {observers}: epsilon {label_bound(b)}, per {b.unit}, delta {fmt.number(b.delta)}."
        for observers, b in shown
    ]
    if refuted:
        towards = ", ".join(dict.fromkeys(b.observer for b in refuted))
        text.insert(0, f"Refuted towards {towards}: no limit holds there.")
    return " ".join(text) or "No: differential privacy protects nobody here."


def _data(result: AuditResult) -> str:
    return (
        f"One seed, {result.scope.dataset}, {result.scope.model}. Rates go with the size of a group and the "
        "model: repeat with your data."
    )
