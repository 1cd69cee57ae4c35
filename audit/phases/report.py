"""Phase 5: audit.json to PDF and HTML. Reads that one file and computes nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.record import SealRecord
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Section

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Writes report.<suffix> for each format the config names; audit.json is there already."""
    progress("report", 0, 1)
    write_reports(run.path, config.report)
    progress("report", 1, 1)


def write_reports(folder: Path, report: Sequence[str], seal: SealRecord | None = None) -> list[str]:
    """Write the reports of a run's audit.json that a config names; returns the names of their files."""
    run, made = RunDir(folder), render_reports(read_result(folder), report, seal)
    for name, content in made.items():
        run.write(folder / name, content)
    return list(made)


def render_reports(
    result: AuditResult, report: Sequence[str], seal: SealRecord | None = None
) -> dict[str, bytes]:
    """Name and bytes of every report that a config names, with who signed the audit where somebody did.

    The same result and the same libraries give the same bytes.
    """
    sections = [catalog.load("sections", name) for name in catalog.names("sections")]
    own = [cls for name in report if issubclass(cls := catalog.load("renderers", name), Section)]
    document = compose(result.model_copy(update={"seal": seal}), [*sections, *own])
    return {name: renderer().render(document) for name, renderer in _renderers(report).items()}


def name_reports(report: Sequence[str]) -> list[str]:
    """Names of the files that the config asks for."""
    return list(_renderers(report))


def _renderers(report: Sequence[str]) -> dict[str, type[Renderer]]:
    made = [catalog.load("renderers", name) for name in report]
    return {f"report.{r.suffix}": r for r in made if not issubclass(r, Section)}


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
