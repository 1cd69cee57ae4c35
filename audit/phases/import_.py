"""Phase 1 of a recorded case: hold what its operator states against what was recorded.

The inbox was taken in before, by `fedaudit import`. Leaves import.json, ledger.jsonl, metrics.jsonl and
data.json. Raises UserError for a statement that cannot be true of these messages; what is doubtful is written
down.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.audit.case.digests import of_file, of_value
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.importing.base import check_base
from fedaudit.audit.importing.canary_clients import canaries
from fedaudit.audit.importing.filters import filters
from fedaudit.audit.importing.identity import LatestUploads, check_identities, latest_uploads
from fedaudit.audit.importing.ledger import BROUGHT, LedgerReplay, derive_ledger
from fedaudit.audit.importing.messages import aggregate, meaning, shapes
from fedaudit.audit.importing.model_fit import check_fit
from fedaudit.audit.importing.protect_messages import TAKEN
from fedaudit.audit.importing.protections import check_protections, every_upload
from fedaudit.audit.importing.replay import check_replays
from fedaudit.audit.importing.statements import check_statements, list_readers, rounds
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.fl import ledger
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import to_line
from fedaudit.fl.recording.recorder import MANIFEST, is_from_client, lines, manifest, unread
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import describe_protection
from fedaudit.reports.imported import CheckedStatement, ImportRecord, UnreadMessage

Progress = Callable[[str, int, int], None]
COPY = "option"  # id of what is said of a copy that was passed through protections


@workers.one_thread()
def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Checks, and the files that the later phases of a simulated case find as well."""
    if not (run.artifacts / MANIFEST).is_file() or not (run.path / TAKEN).is_file():
        raise UserError(
            f"no inbox was taken in to {run.path}",
            hint=f"fedaudit import INBOX --subject subject.yaml --out {run.path}",
        )
    case = RecordedCase(config.require_recorded(), run.artifacts, *run.find_truth())
    taken = run.read_json(run.path / TAKEN)
    files = ImportedFiles(run, case)
    if config.protections:
        if "copied" not in taken:
            raise UserError(
                "protections: recorded messages are what they are",
                hint="name what clients did under subject.protections, and what they could do under variants",
                key="protections",
            )
        files.state_copy()
        return
    own = ledger.read(run.path / BROUGHT) if (run.path / BROUGHT).is_file() else []
    steps: dict[str, Callable[[], list[CheckedStatement]]] = {}
    with locate_errors(config.file):
        _ = case.clients
        if case.network.make_blank is not None:
            shapes(case.artifacts, case.network.make_blank, case.subject, case.base)
        latest = latest_uploads(case.artifacts)
        build = partial(KnownArchitecture, case.network.make, device=case.device) if case.network.make else None
        uploads = LatestUploads(
            messages=latest,
            build=build,
            data=case.data,
            examples=case.examples,
            protections=case.protections,
            streams=case.streams,
        )
        steps = {  # named: how long one takes says nothing of another
            "who is who": lambda: [check_identities(uploads)],
            "models and examples": lambda: [
                meaning(latest),
                *check_base(case.subject, case.network.make_blank, latest, given=case.base is not None),
                check_fit(uploads),
                *rounds(case.subject, case.artifacts),
            ],
            "clients played": lambda: [
                check_replays(
                    Lab.from_case(case), case.examples, case.artifacts, foreign=bool(config.list_code())
                )
            ],
            "the server's model": lambda: aggregate(case.artifacts, case.subject, case.protections),
            "protections": lambda: check_protections(
                case.protections, case.examples, every_upload(case.artifacts), own
            ),
        }
        checks: list[CheckedStatement] = []
        for i, (name, step) in enumerate(steps.items()):
            progress(f"import ({name})", i, len(steps))
            checks += step()
    named = Counter(f for line in manifest(run.artifacts) for f in line.get("filters", ()))
    checks += filters(named)
    checks += list_readers(case.subject)
    checks.append(check_statements(case.subject, case.examples, checks, len(taken["nodes"]) or case.clients))
    found = ImportRecord(
        **taken,
        unread=list_unread(run.artifacts),
        truth=len(case.examples.parts),
        clients=case.clients,
        canaries=canaries(case.subject, case.examples, taken["nodes"]),
        filters=dict(named),
        checks=checks,
    )
    files.write(found)
    progress("import", len(steps), len(steps))


class ImportedFiles:
    """What follows from the messages and statements of a run folder, which later phases read besides them."""

    def __init__(self, run: RunDir, case: RecordedCase) -> None:
        self._run, self._case = run, case

    def write(self, imported: ImportRecord) -> None:
        """The ledger, a line a round, digests of what the case rests on, and what was checked."""
        _write_lines(self._run.ledger, [to_line(r) for r in self._list_releases()])
        _write_lines(self._run.metrics, make_metrics(self._run.artifacts))
        self._run.write_json(self._run.data, self._name_data())
        self._run.write_json(self._run.imported, imported.model_dump(mode="json"))

    def find_problems(self) -> Iterator[str]:
        """What of the files does not follow, as sentences."""
        run = self._run
        if run.read(run.imported, ImportRecord).unread != list_unread(run.artifacts):
            yield f"{run.imported} has other messages as unread than {run.artifacts / MANIFEST}"
        if run.history() != make_metrics(run.artifacts):
            yield f"{run.metrics} does not follow from the messages"
        if ledger.read(run.ledger) != self._list_releases():
            yield f"{run.ledger} does not follow from what is stated of the protections"
        if run.trained_on() != self._name_data():
            yield f"{run.data} is not of the examples and identities that the folder holds"
        imported = run.read(run.imported, ImportRecord)
        if not imported.checks:
            yield f"{run.imported} holds no check of what its operator states"
        for line in lines(run.artifacts):
            if "party" in line and imported.nodes.get(line["party"]) != line["node"]:
                yield f"{run.imported} has another node for {line['party']} than {run.artifacts / MANIFEST}"
                return

    def state_copy(self) -> None:
        """Of a copy that was passed through protections: what was checked of the record holds of it as well."""
        imported, case = self._run.read(self._run.imported, ImportRecord), self._case
        words = "; ".join(describe_protection(p) for p in case.protections[len(case.subject.protections) :])
        text = (
            f"The recorded uploads were passed through them here: {words}. What the server sent stays as it was "
            "recorded: nobody trained on what came out."
        )
        imported.checks = [c for c in imported.checks if c.id != COPY]
        imported.checks.append(
            CheckedStatement(id=COPY, title="Protections of this option", status="holds", text=text)
        )
        self.write(imported)

    def _list_releases(self) -> list[ledger.Release]:
        """The operator's own, where it brought any."""
        own, case = self._run.inside(BROUGHT), self._case
        if own.is_file():
            return ledger.read(own)
        return derive_ledger(self._run.artifacts, LedgerReplay(case, case.method, case.network.initial()))

    def _name_data(self) -> dict[str, str]:
        """Digests of what clients are said to hold, and of who they are said to be."""
        truth = of_file(self._run.truth, "") if self._run.truth.is_file() else "none was given"
        stated = of_value(self._case.config.model_dump(mode="json")["subject"]["identities"])
        return {"data": truth, "population": stated}


def _write_lines(path: Path, lines: list[Any]) -> None:
    durable.remove(path)
    log = durable.Log(path)
    for line in lines:
        log.add(line)
    durable.sync([log])
    log.close()


def list_unread(artifacts: Path) -> list[UnreadMessage]:
    """Messages that were set aside as they came in, and why."""
    return [
        UnreadMessage(
            message=line["unread"],
            sender=line["sender"],
            round=line["round"],
            kinds=line["kinds"],
            why=line["why"],
        )
        for line in unread(artifacts)
    ]


def make_metrics(artifacts: Path) -> list[dict[str, Any]]:
    """A line a round: who was heard, and bytes."""
    sent: dict[int, Counter[str]] = defaultdict(Counter)
    heard: Counter[int] = Counter()
    for line in manifest(artifacts):
        if "traffic" in line and line["traffic"] != Kind.AGGREGATE:  # a sum of what is counted already
            sent[line["round"]][line["channel"]] += line["bytes"]
            if is_from_client(line):
                heard[line["round"]] = max(heard[line["round"]], line["senders"])
    return [
        {
            "round": t,
            "delivered": heard[t],
            "bytes_up": sent[t][Channel.UPLINK],
            "bytes_down": sent[t][Channel.DOWNLINK],
            "bytes_relay": sent[t][Channel.RELAY],
        }
        for t in range(max(sent, default=-1) + 1)
    ]
