"""Phase 1 of a recorded case: hold what its operator states against what was recorded.

Leaves import.json, ledger.jsonl, metrics.jsonl and data.json. Raises UserError for a statement that cannot be
true of these messages; what is doubtful is written down.

`bring` takes inbox, statements, truth and the operator's ledger in before. All of it is put together in a folder
inside the run folder and moved up when the checks are done: an import that is refused or killed leaves the run
folder as it was; one that was not there before is removed.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.audit.case.digests import of_file, of_value
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import STAGING, RunDir, sha256
from fedaudit.audit.case.truth import load_truth
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.importing.base import check_base, read_base
from fedaudit.audit.importing.canary_clients import canaries
from fedaudit.audit.importing.filters import filters
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.identity import LatestUploads, check_identities, latest_uploads
from fedaudit.audit.importing.inbox import InboxLimits, Taken, take_in
from fedaudit.audit.importing.ledger import BROUGHT, LedgerReplay, derive_ledger
from fedaudit.audit.importing.messages import aggregate, meaning, shapes
from fedaudit.audit.importing.model_fit import check_fit
from fedaudit.audit.importing.protect_messages import TAKEN
from fedaudit.audit.importing.protections import check_protections, every_upload
from fedaudit.audit.importing.replay import check_replays
from fedaudit.audit.importing.statements import check_statements, list_readers, rounds
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import PATH, TOKENIZER, Config
from fedaudit.audit.settings.errors import locate_errors, validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.subject import ExampleLayout, RecordedSubject
from fedaudit.fl import ledger
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import to_line
from fedaudit.fl.model import Net
from fedaudit.fl.recording.recorder import MANIFEST, is_from_client, lines, manifest, unread
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import hide_unused
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.fl.wire.protection import describe_protection
from fedaudit.reports.imported import CheckedStatement, ImportRecord, UnreadMessage

Progress = Callable[[str, int, int], None]
MOST_LEDGER = 2**30
SUBJECT = "subject.yaml"
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


@dataclass(frozen=True, kw_only=True)
class ImportSources:
    """What is handed to the auditor, as files and folders."""

    inbox: Path  # what a recorder wrote
    subject: Path | None = None  # what the operator states; None: it is written of the inbox, seen or guessed
    model: str = ""  # the network, where the subject is written
    truth: Path | None = None  # clients' examples
    base: Path | None = None  # weights that nobody sends
    ledger: Path | None = None  # the operator's own

    @property
    def beside(self) -> Path:
        """Where code lies that the subject names."""
        return Path.cwd() if self.subject is None else self.subject.parent


def bring(
    folder: Path,
    config: Config,
    sources: ImportSources,
    progress: Callable[[str, int, int], None],
    *,
    limits: InboxLimits | None = None,
    text: str = "",
) -> ImportRecord:
    """Everything into the folder, and its import phase.

    `text` is kept: that of a subject which was written of the inbox.
    """
    hide_unused(config.device)
    config.bring_code([sources.beside])
    with _stage(folder) as staged:
        case = RecordedCase(config.require_recorded(), staged.artifacts)
        subject = case.subject
        network = _read_shapes(case.network.make_blank)
        noised = [k for k in Kind if any(p.adds_noise_to(k) for p in case.protections)]
        if sources.base is not None:
            if not subject.base:
                raise UserError("a base was given, and the subject names none", hint="add base: its name to it")
            durable.write(staged.base, read_base(sources.base, _read_shapes(case.network.make_whole)))
        with locate_errors(config.file):
            taken = take_in(
                sources.inbox,
                staged.artifacts,
                limits,
                subject.sees,
                network,
                subject.prototypes,
                {} if case.network.make_blank is None else case.network.make_blank().shared_names.others,
                stated=_list_sizes(subject.examples),
                noised=noised,
                progress=partial(progress, "inbox"),
            )
        if sources.truth is not None:
            durable.write(staged.truth, load_truth(sources.truth, subject, taken.nodes).to_bytes())
        if sources.ledger is not None:
            _copy_ledger(sources.ledger, staged.path / BROUGHT)
        staged.write_json(staged.path / TAKEN, _note_inbox(taken, sources.inbox / MANIFEST))
        execute(staged, config, ["import"], progress, skip_finished=False)
        found = ImportRecord.model_validate(staged.read_json(staged.imported))
        if text:
            durable.write(staged.path / SUBJECT, text.encode())
    return found


def state_inbox(
    sources: ImportSources, settings: Mapping[str, Any], where: Path | None = None, *, trust: bool = False
) -> tuple[Config, str]:
    """The config of a recorded case, and the text of its subject where that was written of the inbox.

    `settings` are the auditor's, as a config has them; errors of theirs name `where`. The code that is named is
    loaded; with `trust` nobody is asked about it. Raises UserError with the key.
    """
    subject, base = sources.subject, sources.base
    text = ""
    if subject is None:
        text = write_first_subject(sources.inbox, sources.truth, sources.model, base.stem if base else "")
    with tempfile.TemporaryDirectory() as scratch:  # what is written of an inbox is read as strictly as any file
        written = Path(scratch) / SUBJECT
        durable.write(written, text.encode())
        told: Any = read_yaml(subject or written)
    validate(RecordedSubject, told, subject or SUBJECT)
    # options are tried unless told otherwise: that takes messages, and no client
    stated = {"variants": "auto"} | dict(settings) | {"subject": told}
    config = validate(Config, stated, where or subject or SUBJECT).set_origin(Origin(trust=trust))
    return config.bring_code([sources.beside]), text


def list_copies(config: Config) -> dict[str, Path]:
    """What the config of a recorded case reads outside of its run folder, by the name that --data gives to it."""
    model = config.require_recorded().subject.model
    settings = {model.name: model.settings.get(PATH), TOKENIZER: model.settings.get(TOKENIZER)} if model else {}
    policy = {"policy": config.policy} if config.names_policy_file else {}
    return {name: Path(str(path)) for name, path in (settings | policy).items() if path}


def read_settings(path: Path | None) -> dict[str, Any]:
    """The auditor's settings of a file; none where there is none. Raises UserError for another file."""
    settings: Any = {} if path is None else read_yaml(path)
    if not isinstance(settings, dict):
        raise UserError(f"{path} holds no keys", hint="such as attacks, policy or seed")
    return settings


@contextmanager
def _stage(folder: Path) -> Iterator[RunDir]:
    """A new run folder inside `folder`, which takes its place where nothing fails."""
    staged = folder / STAGING
    with durable.keep_if_filled(folder):
        try:
            durable.remove_folder(staged)  # of an import that was killed
            yield RunDir.create(staged)
            _replace(folder, staged)
        finally:
            durable.remove_folder(staged)


def _replace(folder: Path, staged: Path) -> None:
    """Move what was put together up into the folder, in place of what an earlier import and its audit left."""
    with durable.lock(folder / ".lock"):
        for path in folder.iterdir():
            if path.name not in (STAGING, ".lock"):
                durable.remove_folder(path)
        names = sorted((p.name for p in staged.iterdir() if p.name != ".lock"), key=lambda n: n == "config.yaml")
        for name in names:  # last the config, without which it is no run folder
            durable.move_to(staged / name, folder / name)


def _read_shapes(build: Callable[[], Net] | None) -> dict[str, tuple[int, ...]]:
    """Name -> shape of a network's arrays; empty where none is stated."""
    return {} if build is None else {name: tuple(v.shape) for name, v in build().state_dict().items()}


def _list_sizes(examples: ExampleLayout) -> dict[str, int]:
    """Sizes that are stated, by the letters that shapes of kinds have: classes, and of an image its axes."""
    shape = examples.shape if len(examples.shape) == 3 else ()
    classes = {"C": len(examples.classes)} if examples.classes else {}
    return {**classes, **dict(zip(("channels", "H", "W"), shape, strict=False))}


def _copy_ledger(own: Path, to: Path) -> None:
    if not own.is_file() or own.stat().st_size > MOST_LEDGER:
        raise UserError(f"{own} is no ledger of less than 1 GiB", hint="docs/artifact-format.md")
    ledger.read(own)
    durable.write(to, own.read_bytes())


def _note_inbox(taken: Taken, manifest: Path) -> dict[str, Any]:
    return {
        "recorder": taken.recorder,
        "messages": taken.messages,
        "bytes": taken.bytes,
        "nodes": taken.nodes,
        "errors": taken.errors[:100],
        "changes": taken.changes,
        "sha256": sha256(manifest),
    }
