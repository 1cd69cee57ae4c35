"""Bringing a federation: inbox, statements, truth and the operator's ledger into a run folder, then checks.

All of it is put together in a folder inside the run folder and moved up when the checks are done. An import that
is refused or killed leaves the run folder as it was; one that was not there before is removed.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import STAGING, RunDir, sha256
from fedaudit.audit.case.truth import load_truth
from fedaudit.audit.importing.base import read_base
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.inbox import InboxLimits, Taken, take_in
from fedaudit.audit.importing.ledger import BROUGHT
from fedaudit.audit.importing.protect_messages import TAKEN
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import PATH, TOKENIZER, Config
from fedaudit.audit.settings.errors import locate_errors, validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.subject import ExampleLayout, RecordedSubject
from fedaudit.fl import ledger
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import hide_unused
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.imported import ImportRecord

MOST_LEDGER = 2**30
SUBJECT = "subject.yaml"


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
    stated = {"variants": "auto"} | dict(settings) | {"case": "recorded", "subject": told}
    config = validate(Config, stated, where or subject or SUBJECT).set_origin(Origin(trust=trust))
    return config.bring_code([sources.beside]), text


def list_copies(config: Config) -> dict[str, Path]:
    """What the config of a recorded case reads outside of its run folder, by the name that --data gives to it."""
    model = config.require_recorded().subject.model
    settings = {model.name: model.settings.get(PATH), TOKENIZER: model.settings.get(TOKENIZER)} if model else {}
    policy = {"policy": config.policy} if config.names_policy_file else {}
    named = settings | policy | {Path(p).stem: p for p in config.claims}
    return {name: Path(str(path)) for name, path in named.items() if path}


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
