"""Part of the matrix phase: runs in which clients do not answer, each a run folder under absence/.

Cells continue after a kill, and finished ones are not run again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.cells import Simulate
from fedaudit.audit.phases.failures import reasons
from fedaudit.audit.robustness.dropout import DropoutRun, measure_dropout
from fedaudit.audit.settings.absence import DropoutSettings
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.absence import Absence


def measure(
    absence: DropoutSettings,
    wanted: Mapping[DropoutRun, Mapping[str, Any]],
    classes: Sequence[str],
    simulate: Simulate,
) -> Absence:
    """Every curve of the `wanted` runs; raises UserError where none of them came to its end."""
    places = {place.folder: place for place in wanted}
    cells, failures = simulate({place.folder: overrides for place, overrides in wanted.items()})
    if not cells:
        raise UserError(f"no run of absence came to its end: {failures[0].sentence}", hint=failures[0].hint)
    histories = {places[cell.name]: RunDir(cell.folder).history() for cell in cells}
    return measure_dropout(absence, histories, classes, reasons(failures))
