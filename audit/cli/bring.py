"""Commands of who brings a federation that really ran: recorder and import; `init --from` is in read.py."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fedaudit.audit.cli.app import command, reader, say
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.settings.config import Config


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
    subject: Annotated[Path, typer.Option(help="what its operator states, see `fedaudit init`")],
    truth: Annotated[Optional[Path], typer.Option(help="folder of clients' examples, and own.npz")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option(help="run folder; default runs/NAME of the inbox")] = None,  # noqa: UP045
    config: Annotated[Optional[Path], typer.Option(help="attacks, policy, seed and so on")] = None,  # noqa: UP045
    ledger: Annotated[Optional[Path], typer.Option(help="its operator's own ledger.jsonl")] = None,  # noqa: UP045
    most_gib: Annotated[float, typer.Option(help="largest inbox to take in")] = 64,
    trust: Annotated[bool, typer.Option("--trust-plugins", help="run code that the subject names")] = False,
) -> None:
    """Take in a recorded federation: check every byte and every statement, and make a run folder of it."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.importing.inbox import Limits
    from fedaudit.audit.phases.import_inbox import bring

    stated = _stated(subject, config)
    folder = RunDir.create(out or Path("runs") / inbox.resolve().name)
    limits = Limits(bytes=int(most_gib * 2**30))
    with progress() as report_progress:
        found = bring(folder, stated, inbox, truth, ledger, subject.parent, limits, trust, report_progress)
    say(f"{found.messages:,} messages of {found.recorder or 'an unnamed recorder'}: {folder.path}")
    for check in found.checks:
        say(f"{check.status}: {check.title}: {check.text}")
    say(f"next: fedaudit run {folder.path}{' --trust-plugins' if trust else ''}")


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
