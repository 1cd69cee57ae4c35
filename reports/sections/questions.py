"""Questions: what was asked of every message and its readers, how each question stands, and what rests on it."""

from fedaudit.reports.format import name_observer, sentence_case
from fedaudit.reports.questions import Question, State, describe_answered
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Paragraph, Section, Table

MOST_NAMED = 3  # attacks that were left out


class Questions(Section):
    card = Card(title="Questions and answers", order=35)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.questions:
            return [Paragraph("No message that is made of anybody's examples is known of, so nothing was asked.")]
        return [
            Paragraph(describe_answered(result.questions)),
            Table(
                header=["Question", "Read by", "Answer", "What it rests on"],
                rows=[_row(some) for some in _group_alike(result.questions)],
                align="llll",
                widths=[3.0, 2.2, 1.55, 4.05],
                caption="Every question that follows from what was sent and who could read it, over all rounds "
                "where none are named. Each artifact and each reader of a row is a question of its own. The "
                "verdict waits for those with an asterisk.",
            ),
        ]


def _group_alike(questions: list[Question]) -> list[list[Question]]:
    """Questions that differ in artifact and reader alone, together; required ones first.

    Every artifact of a group has the same readers.
    """
    readers: dict[tuple[object, ...], list[str]] = {}
    for q in questions:
        readers.setdefault((*_key(q), q.artifact), []).append(q.observer)
    groups: dict[tuple[object, ...], list[Question]] = {}
    for q in sorted(questions, key=lambda q: not q.required):
        key = _key(q)
        groups.setdefault((*key, tuple(readers[*key, q.artifact])), []).append(q)
    return list(groups.values())


def _key(q: Question) -> tuple[object, ...]:
    return q.aim, q.required, q.state, give_reason(q), q.accepted


def give_reason(q: Question) -> str:
    """What the answer rests on, without the artifact that the row names; audit.json has all of it."""
    reason = q.why.partition("; it follows")[0]
    if q.state is State.NO_ATTACK:
        return reason.partition(" on ")[0]
    names = reason.split(", ")
    if reason.startswith("left out: ") and len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return reason


def _row(questions: list[Question]) -> list[str]:
    first = questions[0]
    artifacts = ", ".join(dict.fromkeys(q.artifact for q in questions))
    readers = ", ".join(dict.fromkeys(name_observer(q.observer) for q in questions))
    why = f"accepted: {first.accepted}; {give_reason(first)}" if first.accepted else give_reason(first)
    return [
        f"{sentence_case(first.aim)}: {artifacts}{' *' if first.required else ''}",
        readers,
        sentence_case(first.state.words),
        f"{why if why.startswith(('fedaudit', *first.findings)) else sentence_case(why)}.",
    ]
