"""Commands of who brings a federation that really ran: recorder and import; `init --from` is in read.py."""

import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fedaudit.audit.cli.app import command, reader, say
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.settings.config import Config

SUBJECT = "subject.yaml"


class Hook(StrEnum):
    """What a recorder hooks into."""

    PLAIN = "plain"
    FLOWER = "flower"
    NVFLARE = "nvflare"
    CHECKPOINTS = "checkpoints"


@command
def recorder(
    hook: Annotated[Hook, typer.Argument(help="what it hooks into")],
    out: Annotated[Path, typer.Option(help="the Python file to write, beside your app")],
) -> None:
    """Write a recorder for a federation of yours: one file that needs numpy and safetensors, nothing of ours."""
    from fedaudit.audit.importing.recorders.files import source
    from fedaudit.fl.runtime import durable

    if out.exists():
        raise UserError(f"{out} is there already", hint="choose another --out, or remove it")
    if not out.parent.is_dir():
        raise UserError(f"no folder {out.parent}", hint="name a file beside your app")
    durable.write(out, source(hook.value).encode())
    say(f"{out}: its first lines say what to add to your app")


@reader(
    writes=["out"],
    own=["config"],
    target=lambda given: given.get("out") or Path("runs") / given["inbox"].resolve().name,
    works=True,
)
def import_(
    inbox: Annotated[Path, typer.Argument(metavar="INBOX", help="the folder that a recorder wrote")],
    subject: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="what its operator states; default: written of the inbox, and the audit follows"),
    ] = None,
    truth: Annotated[Optional[Path], typer.Option(help="folder of clients' examples, and own.npz")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option(help="run folder; default runs/NAME of the inbox")] = None,  # noqa: UP045
    config: Annotated[Optional[Path], typer.Option(help="attacks, policy, seed and so on")] = None,  # noqa: UP045
    ledger: Annotated[Optional[Path], typer.Option(help="its operator's own ledger.jsonl")] = None,  # noqa: UP045
    model: Annotated[str, typer.Option(help="without --subject: the network, a name or module:Class")] = "",
    most_gib: Annotated[float, typer.Option(help="largest inbox to take in")] = 64,
    trust: Annotated[bool, typer.Option("--trust-plugins", help="run code that the subject names")] = False,
) -> None:
    """Take in a recorded federation: check every byte and every statement, and make a run folder of it.

    Without --subject it writes one into the run folder, every line seen or guessed, asks on a terminal for the
    network, lists what else nobody stated, and runs the audit, with the exit codes of `run`.
    """
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.audit import finish_audit
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.importing.first_subject import list_unseen
    from fedaudit.audit.importing.inbox import Limits
    from fedaudit.audit.phases.import_inbox import bring

    if subject is not None and model:
        raise UserError("--model belongs to an import without --subject", hint="state model in that file")
    if subject is None and not model and sys.stdin.isatty() and sys.stdout.isatty():
        model = typer.prompt("the network, as module:Class or a name of ours (empty: not stated)", default="")
    with tempfile.TemporaryDirectory() as scratch:
        file = subject or _write_first(Path(scratch) / SUBJECT, inbox, truth, model)
        stated, text = _stated(file, config), "" if subject else file.read_text(encoding="utf-8")
    folder = RunDir.create(out or Path("runs") / inbox.resolve().name)
    limits, beside = Limits(bytes=int(most_gib * 2**30)), Path.cwd() if subject is None else subject.parent
    with progress() as report_progress:
        found = bring(folder, stated, inbox, truth, ledger, beside, limits, trust, report_progress, text)
    say(f"{found.messages:,} messages of {found.recorder or 'an unnamed recorder'}: {folder.path}")
    for check in found.checks:
        say(f"{check.status}: {check.title}: {check.text}")
    if subject is not None:
        say(f"next: fedaudit run {folder.path}{' --trust-plugins' if trust else ''}")
        return
    for line in list_unseen(model, has_truth=truth is not None):
        say(f"not stated: {line}")
    say(f"correct a copy of {folder.path / SUBJECT}; then this command with --subject COPY, and `fedaudit run`")
    finish_audit(folder.path, trust=trust)


def _write_first(path: Path, inbox: Path, truth: Path | None, model: str) -> Path:
    from fedaudit.audit.importing.first_subject import first_subject
    from fedaudit.fl.runtime import durable

    durable.write(path, first_subject(inbox, truth, model).encode())
    return path


def _stated(subject: Path, config: Path | None) -> "Config":
    """The config of a recorded case: what the operator states, and the auditor's settings."""
    from fedaudit.audit.settings.config import Config, at
    from fedaudit.audit.settings.errors import validate
    from fedaudit.audit.settings.subject import Subject
    from fedaudit.audit.settings.yaml import read_yaml

    told: Any = read_yaml(subject)
    validate(Subject, told, subject)
    settings: Any = {} if config is None else read_yaml(config)
    if not isinstance(settings, dict):
        raise UserError(f"{config} holds no keys", hint="such as attacks, policy or seed")
    # options are measured unless told otherwise: messages pass through protections without the clients
    stated = {"variants": "auto"} | settings | {"case": "recorded", "subject": told}
    return at(None, validate(Config, stated, config or subject))
