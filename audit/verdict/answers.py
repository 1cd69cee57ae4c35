"""How sure an audit is: the questions that whoever signs asks, answered from what ran."""

from collections.abc import Sequence

from fedaudit.audit.verdict.limits import count_answered, name_question, name_questions
from fedaudit.audit.verdict.statistics import clear
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status, group_observers
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import Answer
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult, Finding, Outcome

MOST_NAMES = 2  # of one answer
MOST_BOUNDS = 2
LAW = (
    "The audit is evidence for an impact assessment (GDPR, Article 35) and for a claim of anonymity (EDPB "
    "Opinion 28/2024). It decides no legal question."
)
EVIDENCE, ASKED, SCOPE = "Evidence by finding", "What was asked", "What was audited"


def answers(result: AuditResult) -> list[Answer]:
    """In the order in which they are asked."""
    ran = [
        f
        for f in result.findings
        if f.source == "attack" and f.outcome not in (Outcome.NOT_APPLICABLE, Outcome.FAILED)
    ]
    return [
        Answer(question="How many people, at most?", answer=_most(result), where=ASKED),
        Answer(question="Do the attacks work at all?", answer=_planted(ran), where=EVIDENCE),
        Answer(question="Do they raise false alarms?", answer=_blind(ran), where=EVIDENCE),
        Answer(question="Which questions are open?", answer=_open(result), where=ASKED),
        Answer(question="What was not tested?", answer=_untried(result), where=ASKED),
        Answer(question="Which attackers were tested?", answer=_conduct(ran, result), where=SCOPE),
        Answer(
            question="Does differential privacy limit the harm?",
            answer=_bound(result),
            where="Differential privacy budget",
        ),
        Answer(question="Does it hold elsewhere?", answer=_data(result), where=SCOPE),
        Answer(question="What does the law ask?", answer=LAW, where="Anonymity dossier"),
    ]


def _most(result: AuditResult) -> str:
    """Upper bounds by question, the largest first, and how many questions nothing bounds."""
    people = [q for q in result.questions if q.aim.is_against_people]
    bounds = sorted((q for q in people if q.at_most is not None and q.people), key=lambda q: -(q.at_most or 0))
    shown = [f"{name_question(q)}: {q.at_most:,} of {q.people:,}" for q in bounds]
    text = f"{_shorten(shown)}. " if shown else ""
    free = [q for q in people if q.at_most is None]
    return (
        f"{text}No bound holds for {len(free)} of {fmt.plural(len(people), 'question')}."
        if people
        else "Not known."
    )


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
        return (
            "None: every required question has an answer." if result.questions else "All: no question was asked."
        )
    return f"{fmt.plural(len(left), 'required question')}: {_shorten(name_questions(left))}."


def _untried(result: AuditResult) -> str:
    """What no attack asked: those that were left out, and those that fedaudit lacks."""
    left = [q for q in result.questions if q.state is State.NOT_ASKED]
    lacking = [q for q in result.questions if q.state is State.NO_ATTACK]
    parts = [f"Not tested: {_shorten(name_questions(left))}."] if left else []
    parts += [f"No attack exists for: {_shorten(name_questions(lacking))}."] if lacking else []
    if not result.questions:
        parts = ["Nothing was tested."]
    text = " ".join(parts) or f"{count_answered(result.questions)}; an attack ran for each of the others."
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
