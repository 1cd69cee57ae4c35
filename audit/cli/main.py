"""The command line: thin; every command imports what it needs when it runs, so --help stays quick.

Exit codes of `run`, `check` and `verify` are those of the verdict: 0 ready (or with conditions), 1 not ready, 3
cannot tell. 2 is an error, of any command.
"""

import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fedaudit.audit.cli.app import CONFINED, app, command, reader, say
from fedaudit.audit.settings.origin import is_received
from fedaudit.fl.runtime.children import start_safely
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.settings.config import Config


class Kind(StrEnum):
    """What `list` can list."""

    METHODS = "methods"
    ATTACKS = "attacks"
    DATASETS = "datasets"
    PARTITIONS = "partitions"
    AVAILABILITY = "availability"
    MODELS = "models"
    DEVICES = "devices"
    ADVERSARIES = "adversaries"
    AGGREGATORS = "aggregators"
    PROTECTIONS = "protections"
    CHECKS = "checks"
    ACCOUNTANTS = "accountants"
    SECTIONS = "sections"
    RENDERERS = "renderers"


class Schema(StrEnum):
    CONFIG = "config"
    RESULT = "result"
    CLAIMS = "claims"


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="a YAML config, or quickstart")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")]
Out = Annotated[Optional[Path], typer.Option(help="run folder; default runs/NAME of the config")]  # noqa: UP045
Hours = Annotated[float, typer.Option(min=0, help="do not start a training that takes longer here")]
Workers = Annotated[Optional[str], typer.Option(help="auto, or how many processes; 0: none")]  # noqa: UP045
Other = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--config", help="use this config's settings for the phase"),
]
Data = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--data", metavar="NAME=PATH", help="your copy of what the folder's config reads elsewhere"),
]
Trust = Annotated[bool, typer.Option("--trust-plugins", help="run code that the folder's own config names")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"fedaudit {version('fedaudit')}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    if debug:
        os.environ["FEDAUDIT_DEBUG"] = "1"


def _is_of_others(given: Mapping[str, Any]) -> bool:
    """Whether `run` was given a run folder, or a config that lies in one."""
    config: Path = given["config"]
    return config.is_dir() or is_received(config)


def _run_folder(given: Mapping[str, Any]) -> Path:
    """Where `run` and `simulate` write."""
    config: Path = given["config"]
    return config if config.is_dir() else given.get("out") or Path("runs") / config.stem


@reader(writes=["out"], own=["config"], target=_run_folder, when=_is_of_others, works=True)
def run(
    config: ConfigFile,
    out: Out = None,
    workers: Workers = None,
    hours: Hours = 24,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Simulate (or go on with an imported RUN folder), attack, account, score, report; continues when killed.

    Exit code 0 ready (or with conditions), 1 not ready, 2 error, 3 cannot tell.
    """
    from fedaudit.audit.cli.audit import finish_audit

    finish_audit(config, out, workers, hours, data, trust=trust)


@reader(own=["config"])
def plan(config: ConfigFile, data: Data = None) -> None:
    """Say which attacks will run, which cannot and why, what nothing reads, and about how long it takes."""
    from fedaudit.audit.cli.preflight import preflight
    from fedaudit.audit.phases.load import load_config

    for line in preflight(load_config(config, data)):
        say(line)


@reader(writes=["out"], own=["config"], target=_run_folder, when=_is_of_others, works=True)
def simulate(
    config: ConfigFile,
    out: Out = None,
    workers: Workers = None,
    hours: Hours = 24,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Train the federation and record what crosses the wire."""
    from fedaudit.audit.cli.audit import run_phases
    from fedaudit.audit.cli.ending import describe_accuracy

    folder = run_phases(config, out, workers, ["simulate"], hours, trust, data)
    say(describe_accuracy(folder.history()))
    say(f"run folder: {folder.path}")


@reader(writes=["run"], own=["config"], works=True)
def attack(run: RunFolder, config: Other = None, data: Data = None, trust: Trust = False) -> None:
    """Run the attacks on what was recorded."""
    _again(run, "attack", config, data, trust)


@reader(writes=["run"], own=["config"], works=True)
def account(run: RunFolder, config: Other = None, data: Data = None, trust: Trust = False) -> None:
    """Add up the differential-privacy losses in the ledger."""
    _again(run, "account", config, data, trust)


@reader(writes=["run"], own=["config"])
def score(run: RunFolder, config: Other = None, data: Data = None, trust: Trust = False) -> None:
    """Judge the evidence by the policy; writes audit.json."""
    _again(run, "score", config, data, trust)


@reader(writes=["run", "annex"], own=["config"])
def report(
    run: RunFolder,
    config: Other = None,
    annex: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="write what the report withholds into this HTML file, and nothing else"),
    ] = None,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Render audit.json."""
    if annex is None:
        _again(run, "report", config, data, trust)
        return
    from fedaudit.audit.phases.annex import render_annex
    from fedaudit.fl.runtime import durable

    if annex.suffix != ".html":
        raise UserError(f"an annex is one page of HTML, got {annex}", hint="--annex annex.html")
    folder, settings = _open_run(run, config, data, trust)
    durable.write(annex, render_annex(folder, settings))
    say(f"{annex}: pictures of people's data; keep it apart from the report")


@reader()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="finished run folders")],
    policy: Annotated[str, typer.Option(help="your policy for all of them; default: each run's own")] = "",
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Print which settings of finished runs differ, and their results side by side."""
    from fedaudit.audit.cli.compare import compare as side_by_side
    from fedaudit.audit.cli.show import print_table

    header, rows = side_by_side(runs, policy, data, trust=trust)
    print_table(header, [header, *rows] if not sys.stdout.isatty() else rows)


@command
def list_(
    what: Annotated[str, typer.Argument(help=f"a kind ({', '.join(Kind)}), or the name of one plugin")],
) -> None:
    """Print the cards of all plugins of a kind, or the card of one plugin."""
    from fedaudit.audit.cli.cards import cards_of
    from fedaudit.audit.cli.cards import show as show_cards

    show_cards(*cards_of(what, list(Kind)))


@reader(own=["config"], when=lambda given: given.get("config") is not None)
def show(
    config: Annotated[Optional[Path], typer.Argument(metavar="CONFIG")] = None,  # noqa: UP045
    schema: Annotated[
        Optional[Schema],  # noqa: UP045
        typer.Option(help="print the JSON Schema of configs, of audit.json or of files of claims"),
    ] = None,
) -> None:
    """Print a config with every default, or a JSON Schema."""
    import json

    if (config is None) == (schema is None):
        raise UserError(
            "show needs a config or --schema, one of them", hint="fedaudit show configs/quickstart.yaml"
        )
    if schema is Schema.RESULT:
        from fedaudit.audit.settings.schema import result_schema
        from fedaudit.reports.result import AuditResult

        say(json.dumps(result_schema(AuditResult), indent=2, allow_nan=False))
    elif schema is Schema.CLAIMS:
        from fedaudit.audit.claims.claim import Claims
        from fedaudit.audit.settings.schema import claims_schema

        say(json.dumps(claims_schema(Claims), indent=2, allow_nan=False))
    elif schema is Schema.CONFIG:
        from fedaudit.audit.settings.schema import config_schema

        say(json.dumps(config_schema(), indent=2, allow_nan=False))
    elif config is not None:
        from fedaudit.audit.phases.load import load_config
        from fedaudit.audit.settings.resolve import dump, resolve

        say(dump(resolve(load_config(config))), end="")


@reader(when=lambda given: given.get("inbox") is not None)
def doctor(
    inbox: Annotated[Optional[Path], typer.Argument(metavar="INBOX", help="a recorded inbox")] = None,  # noqa: UP045
) -> None:
    """Say what is installed and which data sets are found; or what an inbox holds and what can be audited."""
    if inbox is not None:
        from fedaudit.audit.importing.summary import summary

        for line in summary(inbox):
            say(line)
        return
    from fedaudit.audit.cli.show import doctor as examine
    from fedaudit.audit.cli.show import print_table

    print_table(["what", "found"], examine())


def _open_run(path: Path, other: Path | None, data: list[str] | None, trust: bool) -> "tuple[RunDir, Config]":
    """A run folder with its own config or another."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.phases.load import load_config
    from fedaudit.audit.settings.received import parse_data

    folder = RunDir.open(path)
    if other is not None:
        return folder, load_config(other)
    return folder, folder.load_config(trust_plugins=trust, data=parse_data(data))


def _again(path: Path, phase: str, other: Path | None, data: list[str] | None, trust: bool) -> None:
    """One phase of a folder once more, with its own config or another."""
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.phases.plan import execute

    folder, config = _open_run(path, other, data, trust)
    with progress() as report_progress:
        execute(folder, config, [phase], report_progress, skip_finished=False)
    say(f"{phase}: done, {folder.path}")


from fedaudit.audit.cli import bring as _bring  # noqa: E402, F401
from fedaudit.audit.cli import guard as _guard  # noqa: E402, F401
from fedaudit.audit.cli import privacy as _privacy  # noqa: E402, F401  (these add their commands after those above)
from fedaudit.audit.cli import read as _read  # noqa: E402, F401
from fedaudit.audit.cli import review as _review  # noqa: E402, F401
from fedaudit.audit.cli import seal as _seal  # noqa: E402, F401
from fedaudit.audit.cli import shred as _shred  # noqa: E402, F401


def main() -> None:
    start_safely()
    CONFINED.set(True)
    app()


if __name__ == "__main__":
    main()
