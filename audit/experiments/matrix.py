"""Phase: attacks on the model by rules of the server, each pair a run folder under matrix/.

Of a recorded federation, which nobody can run again, the uploads of one round are replayed instead.

Leaves evidence/matrix.json and evidence/absence.json (audit/robustness/dropout.py). Cells continue after a kill,
and finished ones are not run again; those that an attack or a rule does not apply to are named with the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.files import ABSENCE, MATRIX
from fedaudit.audit.experiments.cells import BROKEN, Failure, RunCell, Simulate, list_cells, list_not_run, run_all
from fedaudit.audit.robustness.dropout import DropoutRun, find_holders, measure_dropout, plan_dropout
from fedaudit.audit.robustness.family import plan_family
from fedaudit.audit.robustness.finished_runs import FinishedRun
from fedaudit.audit.robustness.plan import MatrixPlace, plan_matrix
from fedaudit.audit.robustness.reach import plan_leaders
from fedaudit.audit.robustness.recorded_round import RecordedRound, find_round
from fedaudit.audit.robustness.replayed_matrix import replay
from fedaudit.audit.robustness.table import tabulate
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.absence import Absence
from fedaudit.reports.robustness import NotRun, Robustness

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Runs what is left of the matrix and of absent clients, and measures all of it.

    Removes the files of what the config does not ask for.
    """

    def simulate(place: str, changes: Mapping[str, Mapping[str, Any]]) -> tuple[list[RunCell], list[Failure]]:
        return run_all(list_cells(config, changes, run.inside(place), ("simulate",)), progress)

    progress("matrix", 0, 1)
    if config.attack_matrix is None:
        durable.remove(run.evidence / MATRIX)
    else:
        if isinstance(config, SimulatedConfig):
            plan = partial(
                plan_matrix,
                method=config.method,
                federation=config.federation,
                protections=config.protections,
                seed=config.seed,
            )
            made = run_matrix(config.attack_matrix, plan, partial(simulate, "matrix"))
        else:
            case = RecordedCase(config.require_recorded(), run.artifacts, *run.find_truth())
            find = partial(find_round, case)
            made = replay_round(find, case.clients, config.attack_matrix, config.seed, progress)
        run.write(run.evidence / MATRIX, made.model_dump_json(indent=1).encode())
    if isinstance(config, SimulatedConfig):
        if config.absence is None:
            durable.remove(run.evidence / ABSENCE)
        else:
            with sharing():
                wanted = plan_dropout(config.absence, config.method, find_holders(config))
                classes = SimulatedCase(config).data.classes
            curves = run_dropout(config.absence, wanted, classes, partial(simulate, "absence"))
            run.write(run.evidence / ABSENCE, curves.model_dump_json(indent=1).encode())
    progress("matrix", 1, 1)


@workers.one_thread()
def replay_round(
    find: Callable[[], RecordedRound], clients: int, matrix: Matrix, seed: int, progress: Progress
) -> Robustness:
    """The matrix of a recorded federation, of which one round is replayed."""
    try:
        here = find()
    except UserError as error:
        left = NotRun(cells=["every attack on every rule"], reason=error.sentence, failed=False)
        return Robustness(clients=clients, chance=0.0, seeds=[seed], not_run=[left])
    return replay(here, matrix, seed, lambda done, total: progress("matrix", done, total + 1))


def run_matrix(matrix: Matrix, plan: Callable[[Matrix], list[MatrixPlace]], simulate: Simulate) -> Robustness:
    """The whole matrix; raises UserError where none of its runs came to an end.

    `plan` lists the runs of a matrix of this audit.
    """
    todo, ended, failures = plan(matrix), dict[MatrixPlace, FinishedRun](), list[Failure]()
    ran, is_led = dict[str, MatrixPlace](), False
    while True:
        wanted = {p.folder: p for p in todo}
        cells, failed = simulate({n: p.overrides for n, p in wanted.items()})
        ran |= wanted
        failures += failed
        ended |= {wanted[c.name]: FinishedRun(c.config, c.folder) for c in cells}
        with workers.one_thread(), sharing():
            made = tabulate(ended, list_not_run(failures))
        todo = plan_family(ended, ran)
        if not todo and not is_led:
            todo, uncompared = plan_leaders(ended, ran)
            failures += [Failure(name=n, code=BROKEN, sentence=why) for n, why in uncompared.items()]
            is_led = True
        if not todo:
            return made


def run_dropout(
    absence: Matrix, wanted: Mapping[DropoutRun, Mapping[str, Any]], classes: Sequence[str], simulate: Simulate
) -> Absence:
    """Every curve of the `wanted` runs; raises UserError where none of them came to its end."""
    places = {place.folder: place for place in wanted}
    cells, failures = simulate({place.folder: overrides for place, overrides in wanted.items()})
    if not cells:
        raise UserError(f"no run of absence came to its end: {failures[0].sentence}", hint=failures[0].hint)
    histories = {places[cell.name]: RunDir(cell.folder).history() for cell in cells}
    return measure_dropout(absence, histories, classes, list_not_run(failures))
