"""The command line: thin; every command imports what it needs when it runs, so --help stays quick.

Exit codes of `run`, `check` and `verify` are those of the verdict: 0 ready (or with conditions), 1 not ready, 3
cannot tell. 2 is an error, of any command.
"""

import atexit
import importlib
import io
import logging
import os
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer

from fedaudit.audit.cli.app import CONFINED, ask_consent, dp, name_next, reader, say, tools
from fedaudit.audit.cli.app import app as app
from fedaudit.audit.cli.arguments import (
    ConfigFile,
    Data,
    OnePhase,
    Out,
    Trust,
    Workers,
    is_run_folder,
    locate_run,
)
from fedaudit.audit.settings import consent
from fedaudit.fl.runtime.children import without_working_directory
from fedaudit.fl.runtime.machine import own_process


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"fedaudit {version('fedaudit')}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    if debug:
        os.environ["FEDAUDIT_DEBUG"] = "1"


@reader(writes=["out"], own=["config"], target=locate_run, when=is_run_folder, works=True)
def run(
    config: ConfigFile,
    out: Out = None,
    workers: Workers = None,
    phase: OnePhase = None,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Audit a config or an imported RUN; continues when killed.

    Simulate (or go on with an imported folder), attack, account, score, report.
    Exit code 0 ready (or with conditions), 1 not ready, 2 error, 3 cannot tell.
    """
    from fedaudit.audit.cli.audit import Asked, finish_audit, repeat_phase

    asked = Asked(config, out, workers, data or (), trust)
    if phase is None:
        finish_audit(asked)
    else:
        repeat_phase(asked, phase)


@reader(own=["config"], keeps=True)
def plan(
    config: ConfigFile,
    every: Annotated[bool, typer.Option("--all", help="list every attack and question, and why")] = False,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Say what a run will attack, what not, and how long it takes.

    Of an INBOX: what was recorded, what can be audited of it, and what is lacking.
    """
    from fedaudit.audit.cli.load import load_config
    from fedaudit.audit.cli.plan_lines import write_short, write_whole
    from fedaudit.audit.cli.plans import plan_audit

    if config.is_dir() and not (config / "config.yaml").exists():
        from fedaudit.audit.importing.summary import summary

        for line in summary(config):
            say(line)
        return
    made = plan_audit(load_config(config, data, trust_plugins=trust))
    for line in write_whole(made) if every else write_short(made):
        say(line)
    if not every:
        say(name_next("plan", config, "--all"))


# Each adds its commands; `--help` lists them in this order.
_MODULES = ("bring", "review", "read", "search", "privacy", "tools", "shred", "guard", "mechanism")
for _module in _MODULES:
    importlib.import_module(f"fedaudit.audit.cli.{_module}")
for _group in (dp, tools):
    app.add_typer(_group)


class _Printing(io.FileIO):
    """Standard output or error: where whoever read it has gone, as `head` has, the command goes on unheard."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _go_on_unheard() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or none of the system's
            raw = io.BufferedWriter(_Printing(stream.fileno(), "w", closefd=False))
            as_it_comes = bool(stream.line_buffering)
            heard = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=as_it_comes)
            setattr(sys, stream.name.strip("<>"), heard)


def main() -> None:
    CONFINED.set(True)
    _go_on_unheard()
    consent.ASK.set(ask_consent)
    notes = logging.getLogger("fedaudit")
    if logging.lastResort:  # libraries that are loaded later print a note in ways of their own
        notes.addHandler(logging.lastResort)
        notes.propagate = False
    own_process()
    try:
        with without_working_directory():
            app()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _leave(ended.code)
        raise


def _leave(code: int) -> NoReturn:
    """End the process without taking its modules apart, which takes torch's half a second of the processor."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
