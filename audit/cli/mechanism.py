"""The command that plays a mechanism of differential privacy as a black box."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedaudit.audit.cli.app import reader, say, tools
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.plays.mechanism import Update
    from fedaudit.reports.renderer import Renderer


class NeighbouringUpdates(StrEnum):
    """Which updates may not be told apart."""

    REMOVE = "remove"
    REPLACE = "replace"


@reader(tools, files=["out"], reads=["."])
def mechanism(
    make: Annotated[
        str, typer.Argument(metavar="MODULE:MAKE", help="function without arguments that builds a filter")
    ],
    like: Annotated[Path, typer.Option(help="one update, safetensors: names, shapes and types are taken")],
    clip: Annotated[float, typer.Option(help="norm that an update is clipped to")],
    epsilon: Annotated[float, typer.Option(help="claimed of all calls together")],
    delta: Annotated[float, typer.Option(help="claimed")] = 1e-5,
    neighbours: Annotated[
        NeighbouringUpdates, typer.Option(help="of updates: one is removed, or another is in its place")
    ] = NeighbouringUpdates.REMOVE,
    rounds: Annotated[int, typer.Option(help="calls that the claim is about")] = 1,
    out: Annotated[Optional[Path], typer.Option(help="report: .json, .sarif, .pdf, .html or .md")] = None,  # noqa: UP045
) -> None:
    """Play a filter as a black box, against the claim of it.

    Exit code 0 no counterexample, 1 refuted, 3 cannot tell.
    """
    import json

    from fedaudit.audit.mechanism.answers import Outcome
    from fedaudit.audit.mechanism.check import check_mechanism
    from fedaudit.audit.mechanism.report import render
    from fedaudit.fl.runtime import durable, foreign

    renderer = _choose_renderer(out)
    foreign.bring(make, [Path.cwd()])
    found = check_mechanism(
        foreign.find(make),  # type: ignore[arg-type]
        _read_update(like),
        clip=clip,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours.value,
        rounds=rounds,
    )
    for line in str(found).splitlines():
        say(line)
    if out is not None:
        record = json.dumps(found.to_record(), indent=2).encode() + b"\n"
        source = f"{make.partition(':')[0].replace('.', '/')}.py"
        page = render(found, renderer, f"fedaudit tools mechanism {make}", source) if renderer else record
        durable.write(out, page)
        say(f"report: {out}")
    if found.outcome != Outcome.NOTHING:
        raise typer.Exit(1 if found.outcome == Outcome.REFUTED else 3)


def _choose_renderer(out: Path | None) -> "Renderer | None":
    """By the ending of a file; none for JSON, and where nothing is written."""
    from fedaudit.audit.settings import catalog

    if out is None or out.suffix == ".json":
        return None
    formats = {
        f".{r.suffix}": r for n in ("sarif", "pdf", "html", "markdown") for r in (catalog.load("renderers", n),)
    }
    if out.suffix not in formats:
        raise UserError(
            f"a report of the ending {out.suffix or 'none'} is not written",
            hint=f"end its name with one of .json, {', '.join(formats)}",
            key="--out",
        )
    renderer: Renderer = formats[out.suffix]()
    return renderer


def _read_update(path: Path) -> "Update":
    from safetensors import SafetensorError

    from fedaudit.fl.recording.recorder import load_arrays

    if not path.is_file():
        raise UserError(
            f"there is no file {path}", hint="write one update with safetensors, and name it", key="--like"
        )
    try:
        return load_arrays(path.read_bytes())
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} is no update: {error}", hint="write it with safetensors", key="--like"
        ) from error
