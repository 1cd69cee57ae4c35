"""Decision: the page that is signed."""

from typing import Literal

from fedaudit.reports.decision import Word
from fedaudit.reports.format import sentence_case, shorten
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, DecisionPage, Section

TONES: dict[Word, Literal["stop", "wait", "care", "go"]] = {
    Word.READY: "go",
    Word.WITH_CONDITIONS: "care",
    Word.NOT_READY: "stop",
    Word.CANNOT_TELL: "wait",
}
NOT_STATED = "not stated"
LONGEST = 110  # signs of what an owner stated


class Decision(Section):
    card = Card(title="Decision", order=1, front=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None or not decision.page.answers:
            return []
        pictures = decision.page.pictures
        return [
            DecisionPage(
                page=decision.page,
                word=decision.word.words,
                tone=TONES[decision.word],
                stated=_list_stated(result),
                gallery=next(iter(result.galleries[pictures.gallery :]), None) if pictures else None,
            )
        ]


def _list_stated(result: AuditResult) -> dict[str, list[str]]:
    """What the owner states, with every gap named: nothing of it was checked."""
    stated = {
        key: shorten(sentence_case((getattr(result.system, key) or NOT_STATED).rstrip(".")), LONGEST)
        for key in type(result.system).model_fields
    }
    return {
        "Purpose": [stated["purpose"]],
        "Data": [stated["data"]],
        "Controller": [stated["controller"], f"Deployment: {stated['deployment'].lower()}"],
        "Auditor": [stated["author"]],
    }
