"""Phase 5: audit.json to PDF and HTML. Reads that one file and computes nothing."""

from collections.abc import Callable

from audit.settings import catalog
from audit.settings.config import Config
from audit.subject.rundir import RunDir
from fl.errors import UserError
from reports.document import compose
from reports.result import AuditResult

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Writes report.<suffix> for each format the config names; audit.json is there already."""
    result = read_result(run)
    wanted = [*catalog.names("sections"), *config.sections]
    document = compose(result, [catalog.load("sections", name) for name in wanted])
    for number, name in enumerate(config.report):
        progress("report", number, len(config.report))
        renderer = catalog.load("renderers", name)()
        run.write(run.path / f"report.{renderer.suffix}", renderer.render(document))
    progress("report", len(config.report), len(config.report))


def read_result(run: RunDir) -> AuditResult:
    """audit.json, validated."""
    if not run.audit.exists():
        raise UserError(f"no audit.json in {run.path}", hint="run `fedaudit score` first")
    try:
        return AuditResult.model_validate_json(run.audit.read_bytes())
    except ValueError as error:
        first = str(error).splitlines()
        raise UserError(
            f"{run.audit} is not an audit result: {' '.join(first[1:3]).strip()}",
            hint="run `fedaudit score` again",
        ) from error
