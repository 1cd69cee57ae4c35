"""The command line's own machinery: the app, and commands whose errors are one sentence and a hint."""

import functools
import os
from collections.abc import Callable
from typing import Any

import typer

from fl.errors import UserError

app = typer.Typer(
    name="fedaudit",
    help="Privacy and robustness audits for federated learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one sentence and a hint; exit code 2, and 130 when interrupted."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            typer.echo("\nstopped; the same command continues", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if os.environ.get("FEDAUDIT_DEBUG"):
                raise
            _complain(error)
            raise typer.Exit(2) from None

    return app.command(name=function.__name__.removesuffix("_"))(guarded)


def _complain(error: Exception) -> None:
    if isinstance(error, UserError):
        typer.echo(f"error: {error}", err=True)
        return
    text = " ".join(str(error).split())[:300]
    typer.echo(f"error: unexpected {type(error).__name__}: {text}", err=True)
    typer.echo("  hint: `fedaudit --debug ...` shows the traceback; please report it", err=True)
