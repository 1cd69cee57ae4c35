"""Commands of who brings a federation that really ran: recorder, init, import."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.app import command, say
from fl.errors import UserError


class Hook(StrEnum):
    """What a recorder hooks into."""

    PLAIN = "plain"
    FLOWER = "flower"
    NVFLARE = "nvflare"


@command
def recorder(
    hook: Annotated[Hook, typer.Argument(help="what it hooks into")],
    out: Annotated[Path, typer.Option(help="the Python file to write, beside your app")],
) -> None:
    """Write a recorder for a federation of yours: one file that needs numpy and safetensors, nothing of ours."""
    from audit.subject.recorders.files import source
    from fl import durable

    if out.exists():
        raise UserError(f"{out} is there already", hint="choose another --out, or remove it")
    if not out.parent.is_dir():
        raise UserError(f"no folder {out.parent}", hint="name a file beside your app")
    durable.write(out, source(hook.value).encode())
    say(f"{out}: its first lines say what to add to your app")
