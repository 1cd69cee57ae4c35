"""Phase 1: train the federation and record what crosses the wire. Continues where it was killed."""

from collections.abc import Callable
from functools import partial

from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.audit.case.federation import Simulation
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.planning.choice import refuse_fruitless, refuse_impossible
from fedaudit.audit.robustness.dropout import find_holders
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.audit.settings.record import Recorded, is_recorded, keeps_last, list_kinds
from fedaudit.fl.execution.batched import Batched, leave_uploads
from fedaudit.fl.execution.site import Site
from fedaudit.fl.recording.checkpoint import Checkpoints, is_finished
from fedaudit.fl.recording.recorder import Choice, Recorder
from fedaudit.fl.runtime import torchrun
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.wire import Wire

Progress = Callable[[str, int, int], None]


def run(run: RunDir, config: SimulatedConfig, progress: Progress) -> None:
    """Leaves artifacts/, ledger.jsonl, metrics.jsonl, data.json and checkpoint/ in the run folder."""
    if is_finished(run.checkpoint):
        return
    case = SimulatedCase(config, trained_on=run.trained_on() or {})
    with locate_errors(config.file):
        timed = config.federation.is_timed
        refuse_impossible(case.card, timed, config.attacks, config.protections, case.protections)
        rate, gives = getattr(case.training, "lr", 1), case.data.gives
        refuse_fruitless(rate, gives, config.attacks, config.matrix)
        find_holders(config)  # whose absence would be refused when all has been trained
    if not case.trained_on:
        made_of = {"data": of_data(case.data), "population": of_population(case.population)}
        run.write_json(run.data, made_of)
    recorder = Recorder(run.artifacts, _choose_messages(config.record))
    metrics, ledger = Log(run.metrics), Log(run.ledger)
    logs = {"manifest": recorder.manifest, "metrics": metrics, "ledger": ledger}
    simulation = Simulation(case)
    with _start_workers(config.workers, case.device, simulation.make_site(simulation.holdings)) as workers:
        wire = Wire(case.method.card, case.streams, case.protections, recorder, ledger)
        checkpoints = Checkpoints(run.checkpoint, logs, recorder.provenance)
        federation = simulation.build(
            simulation.holdings, wire, workers, metrics=metrics, checkpoints=checkpoints, progress=progress
        )
        leave_uploads(case.method, federation)
        case.method.run(federation)
    for log in logs.values():
        log.close()


def _start_workers(count: int | str, device: str, site: Callable[[], Site]) -> worker_kinds.Workers:
    if count == "torchrun":
        if device != "cpu":
            raise UserError("workers: torchrun is for processors", hint="set device: cpu, or workers: auto")
        return torchrun.Torchrun(site)
    if device == "cuda":
        return Batched(site)
    return worker_kinds.start(worker_kinds.processes(count, device), site)


def _choose_messages(record: Recorded) -> Choice:
    """Which messages the recorder keeps."""
    return Choice(rounds=partial(is_recorded, record), milestones=keeps_last(record), kinds=list_kinds(record))
