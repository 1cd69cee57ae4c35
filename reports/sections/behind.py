"""Behind the decision: who saw what, how sure it is, the words used, and which appendix has the proof."""

import re

from fedaudit.reports import format as fmt
from fedaudit.reports.decision import Answer, Risk
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Heading, Paragraph, Section, Table

WORDS = {
    "Answered": "demonstrated or bounded.",
    "Bounded": "an upper limit is known and tolerable; leaks fainter than those that were planted may exceed it.",
    "Class": "the category of an example: a digit, a diagnosis.",
    "Client": "an organisation or a device that trains on data of its own and sends messages to a server.",
    "Demonstrated": "even the lowest value of an attack's 95 % interval is better than guessing, on messages of "
    "this run or, where these are few, on replays.",
    "Epsilon": "a mathematical limit on what any attack can learn; below 1 is strong, above 10 says little.",
    "Guessing": "the success of somebody who never saw the messages.",
    "Inconclusive": "an attack missed leaks that were planted, had none planted, or had too few trials: no sign "
    "of safety.",
    "Net of luck": "after subtracting what the same attack gets right on people who took no part.",
    "People": "those whose examples were trained on; each example counts as one person unless stated otherwise.",
    "Prototype": "a client's mean feature vector of a class: the average of what its model computes.",
    "Question": "what one party could find out from one kind of message; hiding messages leaves fewer. It is "
    "open while the policy requires it and it is not answered.",
    "Replays": "messages that the auditor makes again from clients' models and data.",
    "Secure aggregation": "the server receives only the sum of clients' messages.",
}
OF_MEANS = ("Prototype", "Replays")  # that only federations which send means need
LONGEST = 400  # signs of an answer
MOST_EXPLAINED, LONGEST_REASON = 5, 130  # harms whose severity is explained, and signs of that


class Behind(Section):
    card = Card(title="What stands behind page 1", order=2, front=True, new_page=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        rows = [
            Answer(question="Who saw what?", answer=_say_who_saw(result), where="Who saw what"),
            *decision.answers,
        ]
        if decision.more:
            time = "What would more time answer?"
            rows.append(Answer(question=time, answer=decision.more, where="Questions and answers"))
        return [
            Heading("Who, how sure, and what is open"),
            Table(
                header=["Question", "Answer", "Appendix"],
                rows=[[a.question, fmt.shorten(a.answer, LONGEST), a.where] for a in rows],
                align="lll",
                widths=[2.0, 6.6, 1.3],
                caption="What the decision rests on, and where the proof is.",
                numbered=False,
            ),
            Heading("Words used"),
            Paragraph(_explain_severities(result), small=True),
            Paragraph(" ".join(f"*{word}*: {text}" for word, text in _define(result).items()), small=True),
        ]


def _explain_severities(result: AuditResult) -> str:
    """Which rule of the policy made each harm as severe as it is."""
    rules = {r.id: re.split("[.:] ", r.reason)[0].rstrip(".") for r in result.policy.rules}
    graded = {f.id: rules.get(f.rule, "") for f in result.findings}
    risks = result.decision.risks if result.decision else []
    harms = [
        f"Harm {number}, {r.severity}{_name_place(r)}: {fmt.shorten(graded[r.finding], LONGEST_REASON)}."
        for number, r in enumerate(risks[:MOST_EXPLAINED], 1)
        if graded.get(r.finding)
    ]
    policy = f"policy {result.policy.name} {result.policy.version}"
    if not harms:
        return f"*Severities* follow the rules of {policy}, which the appendix *Policy* lists."
    return f"*Severity* comes from a rule of {policy}. {' '.join(harms)}"


def _name_place(risk: Risk) -> str:
    """Of which messages alone the rule speaks; empty where it is all."""
    group = next((o.group for o in risk.odds if o.graded), None)
    return "" if group is None else f", of messages of {fmt.plural(round(group), 'example')}"


def _define(result: AuditResult) -> dict[str, str]:
    """The words of these pages, and what each question asks."""
    of_means = any("prototype" in e.kind for e in result.exposures)
    words = {word: text for word, text in WORDS.items() if of_means or word not in OF_MEANS}
    aims = dict.fromkeys(q.aim for q in result.questions)
    words |= {fmt.sentence_case(aim): f"{aim.words}." for aim in aims}
    return dict(sorted(words.items()))


def _say_who_saw(result: AuditResult) -> str:
    """Every party with what it could read, in words; what single clients sent comes first."""
    seen: dict[str, list[str]] = {}
    for e in sorted(result.exposures, key=lambda e: not e.single_client):
        what = e.description or e.kind.replace("_", " ")
        seen.setdefault(e.party, []).append(what[:1].lower() + what[1:])
    if not seen:
        return "Not known: no message was recorded."
    stated = [result.imported.readers] if result.imported and result.imported.readers else []
    said = [f"{fmt.sentence_case(p)}: {'; '.join(dict.fromkeys(what))}." for p, what in seen.items()]
    return " ".join([*stated, *said])
