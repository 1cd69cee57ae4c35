"""Part of the matrix phase: runs in which clients do not answer, each a run folder under absence/.

Cells continue after a kill, and finished ones are not run again.
"""

from collections.abc import Callable
from pathlib import Path

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.phases.cells import cells_of, run_cells
from fedaudit.audit.phases.failures import reasons
from fedaudit.audit.robustness.dropout import find_holders, measure_dropout, plan_dropout
from fedaudit.audit.settings.absence import DropoutSettings
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.absence import Absence

Progress = Callable[[str, int, int], None]
PHASES = ("simulate",)


def measure(folder: Path, config: SimulatedConfig, absence: DropoutSettings, progress: Progress) -> Absence:
    """Every curve, its runs below `folder`; raises UserError where no run came to its end."""
    with sharing():
        wanted = plan_dropout(absence, config.method, find_holders(config))
    cells = cells_of(config, {p.folder: o for p, o in wanted.items()}, folder, PHASES)
    failures = run_cells(cells, progress)
    if len(failures) == len(cells):
        raise UserError(f"no run of absence came to its end: {failures[0].sentence}", hint=failures[0].hint)
    failed = {f.name for f in failures}
    folders = {p: RunDir(c.folder) for p, c in zip(wanted, cells, strict=True) if c.name not in failed}
    with sharing():
        histories = {p: f.history() for p, f in folders.items()}
        classes = SimulatedCase(config).data.classes if absence.leaving else ()
        return measure_dropout(absence, histories, classes, reasons(failures))
