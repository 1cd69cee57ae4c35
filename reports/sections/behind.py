"""Behind the decision: who saw what, how sure it is, the words used, and which appendix has the proof."""

from fedaudit.reports import format as fmt
from fedaudit.reports.decision import Answer
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Heading, Paragraph, Section, Table

WORDS = {
    "Answered": "exposed or clear.",
    "At least": "people whom an attack hit because their data were in: hits less those that luck explains.",
    "At most": "people who are hit in this run by the panel that the policy names; other attacks may hit more.",
    "Clear": "no more people are hit at most than is tolerable, nor in any group.",
    "Class": "the category of an example: a digit, a diagnosis.",
    "Client": "an organisation or a device that trains on data of its own and sends messages to a server.",
    "Exposed": "more people are hit at least than is tolerable, in all or in a group.",
    "Epsilon": "a mathematical limit on what any attack can learn; below 1 is strong, above 10 says little.",
    "Guessing": "the success of somebody who never saw the messages.",
    "Open": "neither exposed nor clear: no sign of safety.",
    "Net of luck": "after subtracting what the same attack gets right on people who took no part.",
    "People": "those whose examples were trained on; each example counts as one person unless stated otherwise.",
    "Prototype": "a client's mean feature vector of a class: the average of what its model computes.",
    "Question": "what can happen to people by all that one party reads.",
    "Replays": "messages that the auditor makes again from clients' models and data.",
    "Secure aggregation": "the server receives only the sum of clients' messages.",
}
OF_MEANS = ("Prototype", "Replays")  # that only federations which send means need
LONGEST = 400  # signs of an answer


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
    """How severity follows from the lower limit, and how many are tolerable."""
    lines = "; ".join(line.what for line in result.policy.lines if "at most" in line.what)
    return (
        "*Severity* follows from how many people are hit at least: none; low, no more than is tolerable; medium, "
        "up to three times that; high, up to half of all; critical, more, or anybody where nobody is tolerable. "
        "Diffuse membership and facts about clients are medium at most. What is seen or proved carries its own. "
        f"Tolerable by policy {result.policy.name} {result.policy.version}: {lines}."
    )


def _define(result: AuditResult) -> dict[str, str]:
    """The words of these pages, and what each question asks."""
    of_means = any("prototype" in e.kind for e in result.exposures)
    words = {word: text for word, text in WORDS.items() if of_means or word not in OF_MEANS}
    harms = dict.fromkeys(q.harm for q in result.questions)
    words |= {fmt.sentence_case(h.label): f"counted where {h.words}." for h in harms}
    words |= {fmt.sentence_case(c.aim): f"{c.aim.words}." for c in result.rule_questions}
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
