"""Phase 1: train the federation and record what crosses the wire. Continues where it was killed."""

from collections.abc import Callable

from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.audit.case.federation import Simulation
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.planning.choice import refuse_fruitless, refuse_impossible
from fedaudit.audit.robustness.dropout import find_holders
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.audit.settings.record import RecordSettings
from fedaudit.fl.execution.batched import Batched
from fedaudit.fl.execution.site import Site
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.checkpoint import Checkpoints, is_finished
from fedaudit.fl.recording.recorder import Choice, Recorder
from fedaudit.fl.runtime import torchrun
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
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
        refuse_fruitless(rate, gives, config.attacks, matrix=config.matrix, absence=config.absence)
        find_holders(config)  # whose absence would be refused when all has been trained
    if not case.trained_on:
        made_of = {"data": of_data(case.data), "population": of_population(case.population)}
        run.write_json(run.data, made_of)
    recorder = Recorder(run.artifacts, _choose_messages(config.record, case.clients, case.streams))
    metrics, ledger = Log(run.metrics), Log(run.ledger)
    logs = {"manifest": recorder.manifest, "metrics": metrics, "ledger": ledger}
    simulation = Simulation(case)
    with _start_workers(config.workers, case.device, simulation.make_site(simulation.holdings)) as workers:
        wire = Wire(case.method.card, case.streams, case.protections, recorder, ledger)
        checkpoints = Checkpoints(run.checkpoint, logs, recorder.provenance)
        federation = simulation.build(
            simulation.holdings, wire, workers, metrics=metrics, checkpoints=checkpoints, progress=progress
        )
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


def _choose_messages(record: RecordSettings, clients: int, streams: Streams) -> Choice:
    """Which messages the recorder keeps."""
    rounds = record.rounds
    if rounds == "all":
        keep_round = lambda t: True  # noqa: E731
    elif rounds == "last":
        keep_round = lambda t: False  # noqa: E731
    elif isinstance(rounds, int):
        keep_round = lambda t: t % rounds == 0  # noqa: E731
    else:
        keep_round = lambda t: t in set(rounds)  # noqa: E731
    if record.clients == "all":
        keep_client = lambda k: True  # noqa: E731
    elif isinstance(record.clients, int):
        everyone = streams.numpy("record").permutation(clients)
        chosen = set(everyone[: record.clients].tolist())
        keep_client = chosen.__contains__
    else:
        keep_client = set(record.clients).__contains__
    kinds = None if record.kinds is None else frozenset(Kind(k) for k in record.kinds)
    milestones = rounds == "last" or isinstance(rounds, int)
    return Choice(rounds=keep_round, milestones=milestones, clients=keep_client, kinds=kinds)
