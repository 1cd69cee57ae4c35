"""Behind the decision: ten questions, who could learn what, the words used, and which appendix has the proof."""

from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import AnswerPage, Block, Card, Section


class Behind(Section):
    card = Card(title="What stands behind page 1", order=2, front=True, new_page=True)

    def build(self, result: AuditResult) -> list[Block]:
        page = result.decision.page if result.decision else None
        return [AnswerPage(page=page)] if page and page.answers else []
