"""The annex of a report: what it withholds, apart from the run folder, which is handed on."""

from fedaudit.audit.settings import catalog
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.result import AuditResult


def render_annex(whole: AuditResult) -> bytes:
    """What the report of a whole result withholds, as one page of HTML: the pictures with nothing left out.

    Raises UserError where no attack drew any.
    """
    if not whole.galleries:
        raise UserError(
            "the report withholds no pictures: no attack of the run drew any", hint="nothing is left to write"
        )
    annex = whole.model_copy(update={"title": f"{whole.title}: what its report withholds"})
    document = compose(annex, [catalog.load("sections", "galleries")])
    page: bytes = catalog.load("renderers", "html")().render(document)
    return page
