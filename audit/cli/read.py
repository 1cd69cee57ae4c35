"""Commands for who reads or begins: explain a finding, init a config."""

from pathlib import Path
from typing import Annotated, Optional

import typer

from fedaudit.audit.cli.app import reader, say
from fedaudit.audit.cli.review import Data
from fedaudit.fl.runtime.errors import UserError


@reader(reads=["runs"])
def explain(
    finding: Annotated[str, typer.Argument(metavar="FINDING", help="its id, as the report and `run` name it")],
    run: Annotated[Optional[Path], typer.Option(help="a run folder; default: the newest in runs/")] = None,  # noqa: UP045
    policy: Annotated[
        str, typer.Option(help="your policy: a name, or a .yaml file; default: the run's own")
    ] = "",
    data: Data = None,
    trust: Annotated[
        bool, typer.Option("--trust-plugins", help="run code that the folder's own config names")
    ] = False,
) -> None:
    """Say what a finding is, why it has its grade and what to do, in the words of the report."""
    from fedaudit.audit.cli.ending import explain_finding, newest
    from fedaudit.audit.cli.gate import Reviewer, judge_folder

    folder = newest(Path("runs")) if run is None else run
    judged = judge_folder(folder, Reviewer(policy=policy, trust=trust, data=tuple(data or ())))
    for line in explain_finding(judged.result, finding, judged.review.content):
        say(line)


@reader(
    writes=["out"],
    target=lambda given: given.get("out") or Path("subject.yaml"),
    when=lambda given: given.get("inbox") is not None,
)
def init(
    out: Annotated[Optional[Path], typer.Argument(metavar="FILE", help="the YAML file to write")] = None,  # noqa: UP045
    inbox: Annotated[Optional[Path], typer.Option("--from", help="an inbox: write a subject of it")] = None,  # noqa: UP045
    truth: Annotated[Optional[Path], typer.Option(help="with --from: examples, for their shape")] = None,  # noqa: UP045
) -> None:
    """Write a commented config, audit.yaml; of an inbox a subject.yaml, every line seen or guessed."""
    from fedaudit.audit.cli.starter import STARTER
    from fedaudit.fl.runtime import durable

    out = out or Path("subject.yaml" if inbox else "audit.yaml")
    if out.exists():
        raise UserError(f"{out} is there already", hint="name another file: fedaudit init mine.yaml")
    if not out.parent.is_dir():
        raise UserError(f"no folder {out.parent}", hint="make it first")
    if truth is not None and inbox is None:
        raise UserError(
            "--truth says what an inbox cannot show", hint="fedaudit init --from INBOX --truth FOLDER"
        )
    if inbox is not None:
        from fedaudit.audit.importing.first_subject import first_subject

        durable.write(out, first_subject(inbox, truth).encode())
        given = f" --truth {truth}" if truth else ""
        say(f"{out}: correct what is guessed, then `fedaudit import {inbox} --subject {out}{given}`")
        return
    durable.write(out, STARTER.replace("THIS_FILE", str(out)).encode())
    say(f"{out}: read it, then `fedaudit plan {out}`")
