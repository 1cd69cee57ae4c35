"""Machinery of the command line: groups, and commands whose errors are one sentence and a hint."""

import errno
import functools
import inspect
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup

from fedaudit.audit.cli.access import derive_access
from fedaudit.audit.cli.confine import choose_limits, confine
from fedaudit.audit.settings import consent, index
from fedaudit.fl.runtime import children
from fedaudit.fl.runtime.errors import UserError, describe_unexpected
from fedaudit.fl.runtime.special_files import refuse_special
from fedaudit.reports.visible import visible, visible_line


class Commands(TyperGroup):
    """The commands of one level; a value that cannot be read is a sentence."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            problems = getattr(error.__cause__, "errors", None)  # of pydantic, by which typer reads values
            if problems is None or error.param is None:
                raise
            _complain(_explain_value(error.param.opts[0], problems()[0]))
            raise typer.Exit(2) from None


def _group(name: str, text: str, more: str | None = None) -> typer.Typer:
    """Commands under one name; without a command it prints what there is."""
    return typer.Typer(
        name=name,
        help=text,
        epilog=more,
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


FURTHER = ("verify", "show", "compare", "harden", "sweep")  # commands that --help names in a line alone
app = _group(
    "fedaudit",
    "Privacy and robustness audits for federated learning.",
    f"Further commands: {', '.join(FURTHER)}; `fedaudit COMMAND --help` says what each does.",
)
dp = _group("dp", "Differential privacy: budgets, calibration, claims.")
tools = _group("tools", "Plugins, recorders, installation, signatures, removal of data.")

CONFINED: Final = ContextVar("CONFINED", default=False)  # set by the program that users start
# Commands that may open what others wrote, such as "check" or "tools shred" -> their arguments that they write
READERS: dict[str, tuple[str, ...]] = {}


def say(line: str, *, err: bool = False) -> None:
    """Print one line; nothing in it can begin another, move the cursor or turn the direction of writing."""
    safe = visible_line(line)
    if (sys.stderr if err else sys.stdout).isatty():
        safe = fold(safe, shutil.get_terminal_size().columns)
    typer.echo(safe, err=err)


def name_next(*words: object) -> str:
    """The line that names the next command, whose words a shell reads as they are."""
    return f"next: {shlex.join(map(str, ('fedaudit', *words)))}"


def print_document(text: str) -> None:
    """Print what has a form of its own, such as JSON or YAML, in which a value cannot pass for a line of ours."""
    typer.echo(visible(text), nl=False)


def fold(line: str, columns: int) -> str:
    """A long line broken between words, its rest indented; a command, which is copied, stays whole."""
    if len(line) <= columns or line.lstrip().startswith(("next: ", "fedaudit ")):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    rows = textwrap.wrap(
        line.strip(),
        columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(rows)


def command(group: typer.Typer, function: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one sentence and a hint; exit code 2, and 130 when interrupted."""

    @functools.wraps(function)
    def run_guarded(*args: Any, **kwargs: Any) -> None:
        try:
            for value in (*args, *kwargs.values()):
                for path in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(path, Path):
                        refuse_special(path, below=False)  # of a folder its reader looks at all
            try:
                function(*args, **kwargs)
            except SystemExit as ended:  # of code that a config names: its number would be read as the verdict
                error = RuntimeError(f"it ends the program with {ended.code}")
                raise error.with_traceback(ended.__traceback__) from None
            finally:
                sys.stdout.flush()  # what nobody could be told is an error, whatever the verdict is
        except typer.Exit:
            raise
        except (KeyboardInterrupt, typer.Abort):  # Abort: a question that got no answer
            say("", err=True)  # below the ^C of a terminal
            say("stopped; the same command continues", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if os.environ.get("FEDAUDIT_DEBUG"):
                raise
            _complain(error)
            raise typer.Exit(2) from None

    name = function.__name__.removesuffix("_")
    return group.command(name=name, hidden=name in FURTHER)(run_guarded)


def ask_consent(error: consent.UnconsentedError) -> bool:
    """At a terminal, ask the user for what a config would run or download; elsewhere nobody is asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    say(error.sentence)
    say(f"SHA-256 {error.digest}")
    return typer.confirm("You have read it, and agree?")


def reader(
    group: typer.Typer = app,
    *,
    writes: Sequence[str] = (),
    files: Sequence[str] = (),
    own: Sequence[str] = (),
    reads: Sequence[str] = (),
    target: Callable[[Mapping[str, Any]], Path | None] | None = None,
    when: Callable[[Mapping[str, Any]], bool] = lambda given: True,
    works: bool = False,
    keeps: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that opens what others wrote: where a user starts it, it runs confined.

    Args:
        group: Where it is: on top, or in `dp` or `tools`.
        writes: Its arguments that are folders in which it writes.
        files: Its arguments that are files which it writes, whatever their suffix.
        own: Its arguments that are configs of the user.
        reads: Paths that it reads without being asked to.
        target: The first of them, where it is not what was given; None where nothing is written.
        when: Whether these arguments name something that others may have written.
        works: Whether it may train and attack for hours.
        keeps: Whether what follows from its arguments, a config of the user, is kept in the index.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run_confined(*args: Any, **kwargs: Any) -> None:
            given = dict(signature.bind(*args, **kwargs).arguments)
            if CONFINED.get() and when(given):
                at = {} if target is None else {(*writes, *files)[0]: target(given)}
                access = derive_access(given | at, writes=writes, files=files, own=own, more=reads)
                if keeps and (folder := index.find_folder()):
                    access = access._replace(writes=[*access.writes, folder])
                confine(access, choose_limits(works))
            function(*args, **kwargs)

        name = function.__name__.removesuffix("_")
        READERS[name if group is app else f"{group.info.name} {name}"] = (*writes, *files)
        return command(group, run_confined)

    return decorate


def _explain_value(name: str, problem: dict[str, Any]) -> UserError:
    """What pydantic finds wrong with an argument's value, in the words that settings have."""
    from fedaudit.fl.runtime.settings import describe_problem

    found = describe_problem(problem)
    found = f" {found}, got {problem['input']!r}" if found.startswith("must ") else f": {found.removesuffix('.')}"
    return UserError(f"{name}{found}", hint="add --help to the command: it lists what it takes")


def _complain(error: Exception) -> None:
    if isinstance(error, UserError):
        say(f"error: {error.sentence}", err=True)
        if error.hint:
            say(f"  hint: {error.hint}", err=True)
        if isinstance(error, consent.UnconsentedError):
            say(error.line, err=True)
        return
    if isinstance(error, MemoryError):
        say("error: it needs more memory than it may have", err=True)
        say("  hint: FEDAUDIT_MEMORY=16 allows 16 GiB", err=True)
        return
    if isinstance(error, PermissionError) and children.is_boxed():
        say(f"error: it may not open {error.filename or 'that'}: {error.strerror}", err=True)
        say("  hint: only what the command line names is opened; --data NAME=PATH names more", err=True)
        return
    if isinstance(error, OSError) and error.filename:
        say(f"error: {error.filename!s:.200} cannot be opened: {error.strerror}", err=True)
        say("  hint: check the path, and what the folder names; a name may have 255 letters", err=True)
        return
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        say(f"error: what was to be printed cannot be written: {error.strerror}", err=True)
        say("  hint: free some space, and give the command again", err=True)
        return
    sentence, hint = describe_unexpected(error)
    say(f"error: {sentence}", err=True)
    say(f"  hint: {hint}", err=True)
