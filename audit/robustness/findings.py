"""What runs of the matrix and of absent clients say: findings without an attack on people, and their pictures."""

from collections.abc import Sequence

from fedaudit.audit.robustness.dropout_findings import list_dropout_findings
from fedaudit.audit.robustness.figures import plot_breakdown, plot_dropout, plot_moved_prototypes
from fedaudit.audit.robustness.lints import find_pitfalls
from fedaudit.audit.robustness.matrix_findings import grade, list_matrix_findings
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.reports.absence import Absence
from fedaudit.reports.result import Figure, Finding
from fedaudit.reports.robustness import Robustness


def list_robustness_findings(
    matrix: Robustness | None,
    absence: Absence | None,
    tolerable: float,
    wanted: Matrix | None,
    partition: str,
    protections: Sequence[PluginSpec],
) -> list[Finding]:
    """What was measured, rated against a `tolerable` share, and flaws of how it was; `matrix` gets its grades.

    `wanted` is the matrix that the config asked for; without a `partition` nobody ran anything.
    """
    found = list[Finding]()
    if matrix:
        grade(matrix, tolerable)
        found += list_matrix_findings(matrix, tolerable)
        found += find_pitfalls(wanted, partition, protections, matrix)
    return found + (list_dropout_findings(absence, tolerable) if absence else [])


def plot_robustness(matrix: Robustness | None, absence: Absence | None) -> list[Figure]:
    """Pictures of what was measured."""
    figures = [*plot_breakdown(matrix), *plot_moved_prototypes(matrix)] if matrix else []
    return figures + (plot_dropout(absence) if absence else [])
