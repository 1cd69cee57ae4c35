"""Commands for who reads: explain a finding, show a config or a schema, compare runs."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from fedaudit.audit.cli.app import print_document, reader, say
from fedaudit.audit.cli.arguments import Data, Trust
from fedaudit.fl.runtime.errors import UserError


class Schema(StrEnum):
    CONFIG = "config"
    RESULT = "result"
    CLAIMS = "claims"


@reader(reads=["runs"])
def explain(
    finding: Annotated[str, typer.Argument(metavar="FINDING", help="its id, as the report and `run` name it")],
    run: Annotated[Optional[Path], typer.Option(help="a run folder; default: the newest in runs/")] = None,  # noqa: UP045
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Say what a finding or a question rests on, and what to do."""
    from fedaudit.audit.cli.ending import explain_finding, newest
    from fedaudit.audit.cli.gate import Reviewer, judge_folder

    folder = newest(Path("runs")) if run is None else run
    judged = judge_folder(folder, Reviewer(trust=trust, data=tuple(data or ())))
    for line in explain_finding(judged.result, finding, judged.review.content):
        say(line)


@reader(own=["config"], when=lambda given: given.get("config") is not None)
def show(
    config: Annotated[Optional[Path], typer.Argument(metavar="CONFIG")] = None,  # noqa: UP045
    schema: Annotated[
        Optional[Schema],  # noqa: UP045
        typer.Option(help="print the JSON Schema of configs, of audit.json or of files of claims"),
    ] = None,
    trust: Trust = False,
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

        print_document(json.dumps(result_schema(AuditResult), indent=2, allow_nan=False) + "\n")
    elif schema is Schema.CLAIMS:
        from fedaudit.audit.claims.claim import ClaimFile
        from fedaudit.audit.settings.schema import claims_schema

        print_document(json.dumps(claims_schema(ClaimFile), indent=2, allow_nan=False) + "\n")
    elif schema is Schema.CONFIG:
        from fedaudit.audit.settings.schema import config_schema

        print_document(json.dumps(config_schema(), indent=2, allow_nan=False) + "\n")
    elif config is not None:
        from fedaudit.audit.cli.load import load_config
        from fedaudit.audit.settings.resolve import dump, resolve

        print_document(dump(resolve(load_config(config, trust_plugins=trust))))


@reader()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="finished run folders")],
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Print what differs between finished runs; in a pipe all of it."""
    from fedaudit.audit.cli.compare import compare as side_by_side
    from fedaudit.audit.cli.compare import select_differences
    from fedaudit.audit.cli.show import print_table

    header, rows = side_by_side(runs, data, trust=trust)
    if not sys.stdout.isatty():
        print_table(header, [header, *rows])
        return
    header, shown = select_differences(header, rows)
    print_table(header, shown)
    if left := len(rows) - len(shown):
        say(f"{left:,} rows more, alike or within each other's intervals, in a pipe:")
        say(f"fedaudit compare {shlex.join(map(str, runs))} | less")
