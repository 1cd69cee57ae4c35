"""Behind the decision: how sure, who saw what, the words that were used, and which appendix has the proof."""

import textwrap

from fedaudit.reports import format as fmt
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.questions import Question
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Heading, Paragraph, Section, Table

WORDS = {
    "People": "those whose examples were trained on; an example is one person where nobody says otherwise.",
    "Client": "an organisation or a device that trains on data of its own and sends messages to a server.",
    "Prototype": "the mean, over a client's examples of one class, of what its model computes from them.",
    "Group": "the examples of one class at one client; in a group of one, the message is about one example.",
    "Guessing": "what an adversary without the messages reaches; only what lies above it comes from them.",
    "Replays": "messages that the auditor makes anew, with clients' models and data.",
    "Net of luck": "after subtracting what the same attack gets right on people who took no part.",
    "Bounded": "at most a tolerable number of people could be exposed, by leaks as visible as those we planted.",
    "Demonstrated": "an attack worked on this run, beyond guessing with its whole interval.",
    "Inconclusive": "the attack missed a leak that was planted for it, or had too few trials: no good news.",
    "Epsilon": "a mathematical limit on what any attack can learn; below 1 is strong, above 10 says little.",
}
OF_MEANS = ("Prototype", "Group", "Replays")  # that only federations which send means need
LONGEST = 260  # signs of an answer
MOST_SEEN = 4  # rows that fit the page


class Behind(Section):
    card = Card(title="What stands behind page 1", order=2, front=True, new_page=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        return [
            Heading("Who, how sure, and what is open"),
            Table(
                header=["Question", "Answer", "Where"],
                rows=[
                    [a.question, textwrap.shorten(a.answer, LONGEST, placeholder=" \u2026"), a.where]
                    for a in decision.answers
                ],
                align="lll",
                widths=[2.1, 6.2, 1.6],
                caption="What the decision rests on, and where the proof is.",
                numbered=False,
            ),
            Heading("Who saw what"),
            *_tabulate_observers(result),
            Heading("Words used"),
            Paragraph(" ".join(f"*{word}*: {text}" for word, text in _define(result).items())),
        ]


def _define(result: AuditResult) -> dict[str, str]:
    """The words of these pages, and what each question asks."""
    of_means = any("prototype" in e.kind for e in result.exposures)
    words = {word: text for word, text in WORDS.items() if of_means or word not in OF_MEANS}
    aims = dict.fromkeys(q.aim for q in result.questions)
    return words | {fmt.sentence_case(aim): f"{aim.words}." for aim in aims}


def _tabulate_observers(result: AuditResult) -> list[Block]:
    """A row a party and kind of message, in words; those of single clients first."""
    seen = sorted(result.exposures, key=lambda e: not e.single_client)
    if not seen:
        return [Paragraph("No message was recorded, so it is not known who saw anything.")]
    shown = seen[:MOST_SEEN]
    blocks: list[Block] = [
        Table(
            header=["Who", "Could read", "Of one client alone", "Questions answered"],
            rows=[
                [
                    fmt.sentence_case(e.party),
                    fmt.sentence_case(e.description or _plain(e.kind)),
                    "yes" if e.single_client else "no",
                    _count_answered(e, result.questions),
                ]
                for e in shown
            ],
            align="llll",
            widths=[2.2, 4.8, 1.3, 1.9],
            caption="Who could read what, and how many of the questions about it are answered.",
            numbered=False,
        )
    ]
    if more := len(seen) - len(shown):
        blocks.append(Paragraph(f"{more:,} more, each in the appendix Who saw what."))
    return blocks


POSITIONS = {"server": "server", "every selected client": "client", "mediators": "mediator"}


def _count_answered(e: PartyExposure, questions: list[Question]) -> str:
    position = POSITIONS.get(e.party, "public" if e.party.startswith("whoever") else e.party)
    mine = [q for q in questions if q.kind == e.kind and q.observer == position]
    return f"{sum(q.is_answered for q in mine)} of {len(mine)}" if mine else "none to ask"


def _plain(kind: str) -> str:
    return kind.replace("_", " ")
