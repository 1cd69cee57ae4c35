"""The report of a mechanism that was played: a page, or lines for a code host."""

from fedaudit.audit.mechanism.answers import Answer, Outcome
from fedaudit.audit.mechanism.check import QUESTIONS, MechanismCheck
from fedaudit.reports.document import compose
from fedaudit.reports.format import number, plural
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import AuditResult, Finding, Headline, Severity
from fedaudit.reports.result import Outcome as Looked
from fedaudit.reports.section import Block, Callout, Card, KeyValues, Paragraph, Section, Table
from fedaudit.reports.standalone import StandaloneDocument, describe_alone

TITLE = "A mechanism of differential privacy, played"
WORDS = {
    Outcome.REFUTED: "Refuted",
    Outcome.NOTHING: "No counterexample",
    Outcome.UNTOLD: "Cannot tell",
    None: "Note",
}
NO_PROOF = (
    "This is no proof that the mechanism is right. It cannot see a fault that is rarer than one call in a "
    "thousand, or that waits for a round, a date or a name; nor whether epsilon is spent elsewhere too."
)


class SevenQuestions(Section):
    """What was claimed, and what each question found."""

    card = Card(title="Seven questions", order=10)

    def __init__(self, found: MechanismCheck) -> None:
        self._found = found

    def build(self, result: AuditResult) -> list[Block]:
        found = self._found
        rows = [[f"{a.question}. {QUESTIONS[a.question]}", WORDS[a.outcome], a.sentence] for a in found.answers]
        facts = {
            "Claimed": found.promise.describe(),
            "Shown": f"epsilon at least {number(found.by_law)} if the noise has the law that it looks like, "
            f"at least {number(found.by_game)} whatever its law",
            "Played": f"{found.calls:,} calls, {plural(found.pairs, 'pair')} of neighbouring updates",
        }
        severity = result.headline.severity
        return [
            Callout(title=WORDS[found.outcome], text=found.reason, severity=severity),
            KeyValues(items=facts),
            Table(
                header=["Asked", "Answer", "What was found"],
                rows=rows,
                caption="What each question found.",
                align="lll",
                widths=[22, 14, 64],
                numbered=False,
            ),
            *([Paragraph(f"The claim: {found.verdict}")] if found.verdict else []),
            Paragraph(NO_PROOF),
        ]


def render(found: MechanismCheck, renderer: Renderer, command: str, source: str) -> bytes:
    """The report in the format of a renderer; `command` made it, of the mechanism in the file `source`."""
    severity = Severity.HIGH if found.outcome == Outcome.REFUTED else Severity.NONE
    result = describe_alone(TITLE, Headline(severity=severity, sentence=found.sentence), command)
    result.findings = [_write_finding(n, a) for n, a in enumerate(found.answers)]
    chapters = compose(result, [SevenQuestions(found)]).chapters
    about = found.promise.describe()
    return renderer.render(StandaloneDocument(result=result, chapters=chapters, about=about, source=source))


def _write_finding(place: int, answer: Answer) -> Finding:
    asked = QUESTIONS[answer.question]
    is_refuted = answer.outcome == Outcome.REFUTED
    return Finding(
        id=f"mechanism-{answer.question}-{place}",
        title=f"{asked} {WORDS[answer.outcome]}",
        source="accountant",
        method=asked,
        outcome=Looked.FAILED if answer.outcome == Outcome.UNTOLD else Looked.RAN,
        severity=Severity.HIGH if is_refuted else Severity.NONE,
        summary=answer.sentence,
        does_not_show=NO_PROOF,
    )
