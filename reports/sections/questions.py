"""Questions: what was asked of every message and its readers, how each question stands, and what rests on it."""

from fedaudit.reports.format import sentence_case
from fedaudit.reports.questions import Question, State, describe_answered
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Paragraph, Section, Table


class Questions(Section):
    card = Card(title="What was asked", order=35)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.questions:
            return [Paragraph("No message was recorded, so nothing was asked.")]
        return [
            Paragraph(describe_answered(result.questions)),
            Table(
                header=["Question", "Read by", "Rounds", "Answer", "What it rests on"],
                rows=[_row(some) for some in _group_alike(result.questions)],
                align="lllll",
                widths=[3.0, 0.8, 1.2, 1.1, 4.6],
                caption="Every question that follows from what was sent and who could read it. The verdict waits "
                "for those with an asterisk.",
            ),
        ]


def _group_alike(questions: list[Question]) -> list[list[Question]]:
    """Questions that differ in their artifact alone, together; required ones first."""
    groups: dict[tuple[object, ...], list[Question]] = {}
    for q in sorted(questions, key=lambda q: not q.required):
        key = (q.aim, q.observer, q.required, q.rounds, q.state, give_reason(q), q.accepted)
        groups.setdefault(key, []).append(q)
    return list(groups.values())


def give_reason(q: Question) -> str:
    """What the answer rests on, without the artifact that the row names; audit.json has all of it."""
    reason = q.why.partition("; it follows")[0]
    return reason.partition(" on ")[0] if q.state is State.NO_ATTACK else reason


def _row(questions: list[Question]) -> list[str]:
    first = questions[0]
    kinds = ", ".join(q.kind.replace("_", " ") for q in questions)
    why = f"accepted: {first.accepted}; {give_reason(first)}" if first.accepted else give_reason(first)
    return [
        f"{sentence_case(first.aim)}: {kinds}{' *' if first.required else ''}",
        first.observer.replace("_", " "),
        first.rounds,
        sentence_case(first.state.words),
        f"{sentence_case(why)}.",
    ]
