"""Commands that run one phase alone, with the run's own config or another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedaudit.audit.cli.app import phase, reader, say
from fedaudit.audit.cli.arguments import (
    ConfigFile,
    Data,
    Hours,
    OtherConfig,
    Out,
    RunFolder,
    Trust,
    Workers,
    is_run_folder,
    locate_run,
)
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.settings.config import Config


@reader(phase, writes=["out"], own=["config"], target=locate_run, when=is_run_folder, works=True)
def simulate(
    config: ConfigFile,
    out: Out = None,
    workers: Workers = None,
    hours: Hours = 24,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Train the federation and record what crosses the wire."""
    from fedaudit.audit.cli.audit import load_settings, run_phases
    from fedaudit.audit.cli.ending import describe_accuracy

    settings = load_settings(config, workers, data, trust=trust)
    folder = run_phases(config, out, settings, ["simulate"], hours)
    say(describe_accuracy(folder.history()))
    say(f"run folder: {folder.path}")


@reader(phase, writes=["run"], own=["config"], works=True)
def attack(run: RunFolder, config: OtherConfig = None, data: Data = None, trust: Trust = False) -> None:
    """Run the attacks on what was recorded."""
    _repeat(run, "attack", config, data, trust)


@reader(phase, writes=["run"], own=["config"], works=True)
def account(run: RunFolder, config: OtherConfig = None, data: Data = None, trust: Trust = False) -> None:
    """Add up the differential-privacy losses in the ledger."""
    _repeat(run, "account", config, data, trust)


@reader(phase, writes=["run"], own=["config"])
def score(run: RunFolder, config: OtherConfig = None, data: Data = None, trust: Trust = False) -> None:
    """Judge the evidence by the policy and write audit.json."""
    _repeat(run, "score", config, data, trust)


@reader(phase, writes=["run"], files=["annex"], own=["config"])
def report(
    run: RunFolder,
    config: OtherConfig = None,
    annex: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="write what the report withholds into this HTML file, and nothing else"),
    ] = None,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Render audit.json, or with --annex what the report withholds."""
    if annex is None:
        _repeat(run, "report", config, data, trust)
        return
    from fedaudit.audit.phases.annex import render_annex
    from fedaudit.audit.phases.score import Scoring
    from fedaudit.fl.runtime import durable

    if annex.suffix != ".html":
        raise UserError(f"an annex is one page of HTML, got {annex}", hint="--annex annex.html")
    folder, settings = _open_run(run, config, data, trust)
    durable.write(annex, render_annex(Scoring(folder, settings).derive_whole()))
    say(f"{annex}: pictures of people's data; keep it apart from the report")


def _open_run(path: Path, other: Path | None, data: list[str] | None, trust: bool) -> "tuple[RunDir, Config]":
    """Open a run folder with its own config or another."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.phases.load import load_config

    folder = RunDir.open(path)
    if other is not None:
        return folder, load_config(other, trust_plugins=trust)
    return folder, load_config(path, data, trust_plugins=trust)


def _repeat(path: Path, name: str, other: Path | None, data: list[str] | None, trust: bool) -> None:
    """Run one phase of a folder once more, with its own config or another."""
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.phases.execute import execute

    folder, config = _open_run(path, other, data, trust)
    with progress() as report_progress:
        execute(folder, config, [name], report_progress, skip_finished=False)
    say(f"{name}: done, {folder.path}")
