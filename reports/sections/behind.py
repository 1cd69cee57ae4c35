"""Behind the decision: how sure, who saw what, the words that were used, and which appendix has the proof."""

from reports import format as fmt
from reports.covered import Covered
from reports.result import AuditResult
from reports.section import Block, Bullets, Card, Cell, Heading, Paragraph, Section, Table

WORDS = {
    "Client": "an organisation or a device that trains on data of its own and sends messages to a server.",
    "Prototype": "the mean, over a client's examples of one class, of what its model computes from them.",
    "Group": "the examples of one class at one client; of a group of one, what is sent tells of one example.",
    "Guessing": "what an adversary without the messages reaches; only what lies above it was learned from them.",
    "Recognised": "named as a member while one in a hundred others is wrongly named.",
    "Redrawn": "a reconstruction is nearer to the true image than to others of its class.",
    "Demonstrated": "an attack worked on this run, beyond guessing with its whole interval.",
    "Inconclusive": "the attack missed a leak that was planted for it, or had too few trials: no good news.",
    "Epsilon": "a mathematical limit on what any attack can learn; below 1 is strong, above 10 says little.",
}


class Behind(Section):
    card = Card(title="What stands behind page 1", order=2, front=True, new_page=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        return [
            Heading("How sure are we"),
            Table(
                header=["Question", "Answer", "Where"],
                rows=[[a.question, a.answer, a.where] for a in decision.answers],
                align="lll",
                widths=[2.1, 5.2, 2.0],
                caption="What the decision rests on, and where the proof is.",
                numbered=False,
            ),
            Heading("Who saw what"),
            *_seen(result),
            Heading("What this audit does not say"),
            Bullets(
                [
                    "It never says *safe*. An attack that showed nothing bounds that attack, with those trials "
                    "and that knowledge; a stronger adversary may do better.",
                    "Severity ranks findings by a policy with stated reasons "
                    f"({result.policy.name}, version {result.policy.version}). "
                    "It is no measure of legal or organisational risk.",
                ]
            ),
            Heading("Words used"),
            Paragraph(" ".join(f"*{word}*: {text}" for word, text in WORDS.items())),
        ]


def _seen(result: AuditResult) -> list[Block]:
    """A row a party: what told it of single clients, what else it saw, and what of that was attacked."""
    if not result.exposures:
        return [Paragraph("No message was recorded, so no party is known to have seen anything.")]
    rows = []
    for party in dict.fromkeys(e.party for e in result.exposures):
        seen = [e for e in result.exposures if e.party == party]
        single = ", ".join(_plain(e.kind) for e in seen if e.single_client) or "nothing"
        other = ", ".join(_plain(e.kind) for e in seen if not e.single_client) or "nothing else"
        rows.append(
            [fmt.sentence_case(party), single, other, _attacked(party, result.headline.coverage.artifacts)]
        )
    return [
        Table(
            header=["Party", "Of single clients", "Of all together", "Attacked"],
            rows=rows,
            align="llll",
            widths=[1.6, 2.6, 2.0, 3.2],
            caption="Who could read what, and what of it was attacked.",
            numbered=False,
        )
    ]


POSITIONS = {"server": "server", "every selected client": "client", "mediators": "mediator"}


def _attacked(party: str, artifacts: list[Covered]) -> str | Cell:
    position = POSITIONS.get(party, "public" if party.startswith("whoever") else party)
    here = [a for a in artifacts if a.party == position and a.status != "tells_nothing"]
    done = [_plain(a.kind) for a in here if a.status in ("attacked", "elsewhere")]
    bare = [_plain(a.kind) for a in here if a.status not in ("attacked", "elsewhere")]
    if not bare:
        return ", ".join(done) or "tells nothing"
    return Cell(text=", ".join(done), lead=f"not {', '.join(bare)}")


def _plain(kind: str) -> str:
    return kind.replace("_", " ")
