"""The command line's own machinery: the app, and commands whose errors are one sentence and a hint."""

import functools
import os
from collections.abc import Callable
from typing import Any

import typer

from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.visible import visible

app = typer.Typer(
    name="fedaudit",
    help="Privacy and robustness audits for federated learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print; nothing in it can move the cursor, colour the terminal or turn the direction of writing."""
    typer.echo(visible(text) + end, err=err, nl=False)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one sentence and a hint; exit code 2, and 130 when interrupted."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            say("\nstopped; the same command continues", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if os.environ.get("FEDAUDIT_DEBUG"):
                raise
            _complain(error)
            raise typer.Exit(2) from None

    return app.command(name=function.__name__.removesuffix("_"))(guarded)


def _complain(error: Exception) -> None:
    if isinstance(error, UserError):
        say(f"error: {error}", err=True)
        return
    if isinstance(error, MemoryError):
        say("error: it needs more memory than it may have\n  hint: FEDAUDIT_MEMORY=16 allows 16 GiB", err=True)
        return
    text = " ".join(str(error).split())[:300]
    say(f"error: unexpected {type(error).__name__}: {text}", err=True)
    say("  hint: `fedaudit --debug ...` shows the traceback; please report it", err=True)
