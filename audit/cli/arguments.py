"""Arguments and options that several commands take."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="a YAML config, or demo, or quickstart")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="a run folder")]
Out = Annotated[Optional[Path], typer.Option(help="run folder; default runs/NAME of the config")]  # noqa: UP045
Workers = Annotated[Optional[str], typer.Option(help="auto, or how many processes; 0: none")]  # noqa: UP045
OnePhase = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="only this one, once more: simulate, attack, account, matrix, score or report"),
]
Data = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--data", metavar="NAME=PATH", help="your copy of what the folder's config reads elsewhere"),
]
Trust = Annotated[bool, typer.Option("--trust-plugins", help="run and download what the config names")]


def is_run_folder(given: Mapping[str, Any]) -> bool:
    """Whether `run` was given a run folder, which others may have made, and no config."""
    config: Path = given["config"]
    return config.is_dir()


def locate_run(given: Mapping[str, Any]) -> Path:
    """Where `run` writes."""
    config: Path = given["config"]
    return config if config.is_dir() else given.get("out") or Path("runs") / config.stem
