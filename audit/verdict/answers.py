"""How sure an audit is: the questions that whoever signs asks, answered from what ran."""

from collections.abc import Sequence

from fedaudit.attacks import stats
from fedaudit.audit.verdict.findings import clear
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status, choose_bound, group_observers
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import Answer
from fedaudit.reports.questions import Cell, Question, State, count_states, describe_answered
from fedaudit.reports.result import AuditResult, Finding, Outcome

MOST_NAMES = 3  # of one answer
MOST_BOUNDS = 2
LAW = (
    "The audit is material for an impact assessment (GDPR, Article 35(7)(c) and (d)) and for the question of "
    "anonymity (EDPB Opinion 28/2024). It decides neither."
)
NOT_OF_MODEL = "That the released model is anonymous was not established"
EVIDENCE, ASKED, SCOPE = "Evidence by finding", "Questions and answers", "What was audited"


def answer_signer(result: AuditResult) -> list[Answer]:
    """In the order in which they are asked."""
    ran = [f for f in result.findings if f.source == "attack" and f.outcome is Outcome.RAN]
    rows = [
        ("How many people?", _describe_people(result), ASKED),
        ("Who can do it?", _name_attackers(ran, result), "Who saw what"),
        ("How sure is it?", f"{_describe_planted_leaks(ran)} {_describe_false_alarms(ran)}", EVIDENCE),
        ("What was not tested, or is open?", _describe_coverage(result), ASKED),
        ("Does differential privacy limit the harm?", _describe_privacy(result), "Differential privacy budget"),
        ("Does it hold elsewhere?", _describe_reach(result), SCOPE),
        ("What is it evidence for, in law?", _describe_law(result), "Anonymity dossier"),
    ]
    return [Answer(question=question, answer=answer, where=where) for question, answer, where in rows]


def find_most_hit(result: AuditResult) -> Question | None:
    """The question by which most people are known to be hit; a verdict waits for it rather than not."""
    people = [q for q in result.questions if q.at_least and q.harm is not Harm.CLIENT_FACT]
    return max(people, key=lambda q: (q.required, not q.harm.is_mild, q.at_least), default=None)


def _describe_people(result: AuditResult) -> str:
    """Who is hit, the largest upper limit, and how many questions have none."""
    parts = []
    if (worst_hit := find_most_hit(result)) is not None:
        shown = f"At least {worst_hit.at_least:,} of {worst_hit.people:,}, by {fmt.name_question(worst_hit)}"
        parts.append(f"{shown}. Others may be hit besides.")
    asked = result.questions
    bounded = [q for q in asked if q.has_limit]
    if bounded:
        worst = max(bounded, key=lambda q: q.at_most or 0)
        where = f"{worst.at_most or 0:,} of {worst.people:,} ({fmt.name_question(worst)})"
        highest = f": {where}" if len(bounded) == 1 else f"; the highest (do not add them) is {where}"
        parts.append(
            f"An upper limit is known for {len(bounded)} of {fmt.plural(len(asked), 'question')}{highest}."
        )
    if len(asked) > len(bounded):
        other = "the other " if bounded else ""
        everybody = max((q.people for q in asked), default=0)
        all_ = f": it could be all {everybody:,}" if everybody else ""
        parts.append(f"For {other}{len(asked) - len(bounded)} none is known{all_}.")
    return " ".join(parts) or "Not known."


def _name_attackers(ran: Sequence[Finding], result: AuditResult) -> str:
    """Who reads enough to hit people, who reads messages as well, and how attackers behaved."""
    able = dict.fromkeys(fmt.name_observer(q.observer) for q in result.questions if q.at_least)
    others = [q for q in result.questions if fmt.name_observer(q.observer) not in able]
    text = f"Shown for {fmt.join_words(list(able))}." if able else "Shown for nobody."
    if others:
        names = fmt.join_words([*dict.fromkeys(fmt.name_observer(q.observer) for q in others)])
        is_clear = all(q.state is State.CLEAR for q in others)
        text += f" {fmt.sentence_case(names)} {'are clear' if is_clear else 'cannot be excluded'} "
        text += f"({fmt.plural(len(others), 'question')} about them: {count_states(others)})."
    return f"{text} {_describe_conduct(ran, result)}"


def _describe_law(result: AuditResult) -> str:
    """What the audit is evidence for; the conclusion is a lawyer's."""
    shown = any(q.is_exposed for q in result.questions)
    text = "After what was shown, the messages cannot be presumed anonymous. " if shown else ""
    if released := [q for q in result.questions if q.observer == "public"]:
        seen = any(q.is_exposed for q in released)
        text += f"{'Nor can the released model' if seen else NOT_OF_MODEL}. "
    return f"{text}Untested does not mean anonymous. {LAW}"


def _describe_planted_leaks(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "positive" for e in f.evidence)]
    if not tried:
        return "Not shown: no leak was planted for any attack."
    found = [f for f in tried if any(clear(e) for e in f.evidence if e.control == "positive")]
    lost = [f.id for f in tried if f not in found]
    text = f"{len(found)} of {fmt.plural(len(tried), 'attack')} found at least one leak that was planted for them"
    rest = f", {fmt.join_words(lost)} did not" if lost else ""
    return f"{text}{rest}{_count_others('; no leak was planted for ', ran, tried)}."


def _describe_false_alarms(ran: Sequence[Finding]) -> str:
    tried = [f for f in ran if any(e.control == "negative" for e in f.evidence)]
    if not tried:
        return "The rate of false alarms is not known."
    untried = _count_others(" No such data was given to ", ran, tried, ".")
    fired = [f.id for f in tried if any(clear(e) for e in f.evidence if e.control == "negative")]
    who = f"{', '.join(fired)} raised" if fired else "none raised"
    most = fmt.percent(stats.clopper_pearson(len(fired), len(tried))[1])
    return (
        f"Of {fmt.plural(len(tried), 'control test')} on data that nobody trained on, {who} a false alarm; with "
        f"so few, a rate of up to {most} cannot be excluded.{untried} What was not demonstrated can still happen."
    )


def _count_others(before: str, ran: Sequence[Finding], tried: Sequence[Finding], after: str = "") -> str:
    """How many attacks a control was not made for, in a sentence; empty where there are none."""
    others = len(ran) - len(tried)
    return f"{before}{fmt.plural(others, 'other')}{after}" if others else ""


def _describe_coverage(result: AuditResult) -> str:
    """How the questions stand, and how many of those that the policy requires are open."""
    asked = result.cells
    if not asked:
        return "Nothing was tested: no question was asked."
    text = describe_answered(asked)
    if unread := fmt.describe_unread(result.imported):
        text = f"{unread} {text}"
    left = [c for c in asked if c.is_open]
    return f"{text} They are {fmt.join_words(fmt.name_questions(left))}." if left else text


def describe_more(left: Sequence[Cell]) -> str:
    """Which of these open questions more time would ask or settle, and how much of it; empty without any."""
    if not left:
        return ""
    waiting = [c for c in left if c.next_attack]
    untested = [c for c in left if isinstance(c, Question) and not c.next_attack and c.more]
    parts = []
    if waiting:
        seconds = {c.next_attack: c.seconds for c in waiting}
        names = sorted(seconds, key=lambda n: (seconds[n] or 0.0, n))
        time = _estimate([*seconds.values()])
        more = f" and {fmt.plural(len(names) - MOST_NAMES, 'other')}" if len(names) > MOST_NAMES else ""
        parts.append(
            f"{len(waiting)} of {fmt.plural(len(left), 'open required question')} lack attacks that this "
            "audit left "
            f"out{f' (about {time} of one core)' if time else ''}: {', '.join(names[:MOST_NAMES])}{more}."
        )
    if untested:
        time = _estimate([c.seconds for c in untested])
        parts.append(f"Testing more people{f' (about {time})' if time else ''} should settle {len(untested)}.")
    if rest := [c for c in left if c not in waiting and c not in untested]:
        stay = "stays" if len(rest) == 1 else "stay"
        parts.append(f"{len(rest)} {stay} open whatever the time budget.")
    return " ".join(parts)


def _estimate(seconds: Sequence[float | None]) -> str:
    """All of them in whole seconds, which is all that an estimate is good for; "" where one is not known."""
    known = [s for s in seconds if s is not None]
    return fmt.duration(max(1, round(sum(known)))) if len(known) == len(seconds) else ""


def _describe_conduct(ran: Sequence[Finding], result: AuditResult) -> str:
    threats = [f.threat for f in ran if f.threat]
    bad = list(dict.fromkeys(t.position.replace("_", " ") for t in threats if t.conduct == "malicious"))
    text = "No attack ran."
    if ran:
        text = f"Attacks by a malicious {', '.join(bad)} ran."
        text = text if bad else "Only attackers that follow the protocol were tested."
    tried = "Malicious clients attacked the model." if result.robustness else "No malicious client was tested."
    return f"{text} {tried}"


def _describe_privacy(result: AuditResult) -> str:
    if not result.bounds:
        silent = "There is nothing to limit: nothing that is made of anybody's examples was sent."
        return "Unknown: no accountant was run." if result.questions else silent
    quoted = [choose_bound(result.bounds, o) for o in dict.fromkeys(b.observer for b in result.bounds)]
    shown = group_observers([b for b in quoted if b and b.holds])[:MOST_BOUNDS]
    refuted = [b for b in result.bounds if b.status is Status.REFUTED]
    text = [
        f"Towards {observers}: epsilon {label_bound(b)}, per {b.unit}, delta {fmt.number(b.delta)}."
        for observers, b in shown
    ]
    if refuted:
        towards = ", ".join(dict.fromkeys(b.observer for b in refuted))
        text.insert(0, f"Refuted towards {towards}: no limit holds there.")
    why = next((r.sentence for b in result.bounds for r in b.reasons), "")
    return " ".join(text) or (
        f"No: {why}, and so no mathematical limit applies." if why else "No: no bound holds."
    )


def _describe_reach(result: AuditResult) -> str:
    run = "run" if result.imported else "simulated run"
    return (
        f"Not known: this was one {run}, on {result.scope.dataset} with the model {result.scope.model}. Other "
        "data, models and numbers of examples give other rates: repeat it with yours."
    )
