"""Tools: what can be named in a config, and recorders for federations elsewhere."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedaudit.audit.cli.app import command, say, tools
from fedaudit.fl.runtime.errors import UserError


class PluginKind(StrEnum):
    """What `tools list` can list."""

    METHODS = "methods"
    ATTACKS = "attacks"
    DATASETS = "datasets"
    TASKS = "tasks"
    PARTITIONS = "partitions"
    AVAILABILITY = "availability"
    SELECTIONS = "selections"
    MODELS = "models"
    DEVICES = "devices"
    ADVERSARIES = "adversaries"
    AGGREGATORS = "aggregators"
    PROTECTIONS = "protections"
    CHECKS = "checks"
    ACCOUNTANTS = "accountants"
    SECTIONS = "sections"
    RENDERERS = "renderers"
    MESSAGES = "messages"


class Hook(StrEnum):
    """What a recorder hooks into."""

    PLAIN = "plain"
    FLOWER = "flower"
    NVFLARE = "nvflare"
    CHECKPOINTS = "checkpoints"


@partial(command, tools)
def list_(
    what: Annotated[str, typer.Argument(help=f"a kind ({', '.join(PluginKind)}), or the name of one")],
) -> None:
    """Print the plugins of a kind, or messages, or one of them."""
    from fedaudit.audit.cli.cards import cards_of, show

    show(*cards_of(what, list(PluginKind)))


@partial(command, tools)
def trust(
    digest: Annotated[
        str, typer.Argument(metavar="SHA256", help="of code or a download, as a command printed it")
    ],
) -> None:
    """Agree to code or a download once, in every command."""
    from fedaudit.audit.settings import consent

    kept = consent.keep(digest, "by fedaudit tools trust")
    if kept is None:
        raise UserError("the system names no folder of yours to keep it in", hint="set HOME or XDG_CACHE_HOME")
    say(f"agreed; remove {kept} to take it back")


@partial(command, tools)
def recorder(
    hook: Annotated[Hook, typer.Argument(help="what it hooks into")],
    out: Annotated[Path, typer.Option(help="the Python file to write, beside your app")] = Path(
        "fedaudit_recorder.py"
    ),
) -> None:
    """Write a recorder for your federation.

    It is one file that needs numpy and safetensors, and nothing of fedaudit.
    """
    from fedaudit.audit.importing.recorders.files import source
    from fedaudit.fl.runtime import durable

    if out.exists():
        raise UserError(f"{out} is there already", hint="choose another --out, or remove it")
    if not out.parent.is_dir():
        raise UserError(f"no folder {out.parent}", hint="name a file beside your app")
    durable.write(out, source(hook.value).encode())
    say(f"{out}: its first lines say what to add to your app")
