"""Commands of who begins: a config, or a federation that really ran and was recorded."""

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedaudit.audit.cli.app import name_next, reader, say
from fedaudit.audit.cli.arguments import Trust
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    pass

Model = Annotated[
    str,
    typer.Option(
        help="without a subject: the network, a name of ours, module:Class, module:function that builds it, or a "
        "folder that save_pretrained wrote"
    ),
]
MOST_UNREAD = 10  # messages that are named one by one


@reader(
    files=["out"],
    target=lambda given: given.get("out") or Path("subject.yaml"),
    when=lambda given: given.get("source") is not None,
)
def init(
    out: Annotated[Optional[Path], typer.Argument(metavar="FILE", help="the YAML file to write")] = None,  # noqa: UP045
    source: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="an inbox: write a subject of it; a CSV file: a schema of it, and a config"),
    ] = None,
    truth: Annotated[Optional[Path], typer.Option(help="with --from: examples, for their shape")] = None,  # noqa: UP045
    model: Model = "",
) -> None:
    """Write a commented config, or with --from the subject of an inbox.

    The config is audit.yaml; the subject is subject.yaml, every line seen or guessed. From a table the config is
    of it, and a schema beside it says what its columns are, every guess marked.
    """
    from fedaudit.audit.cli.starter import STARTER
    from fedaudit.fl.runtime import durable

    if source and not source.exists():
        raise UserError(f"no file or folder {source}", hint="give an inbox, or a table with a header")
    inbox, table = (None, source) if source and source.is_file() else (source, None)
    out = out or Path("subject.yaml" if inbox else "audit.yaml")
    if out.exists():
        given = f" --from {source}" if source else ""
        raise UserError(
            f"{out} is there already", hint=f"name another file: fedaudit init {_name_free(out)}{given}"
        )
    if not out.parent.is_dir():
        raise UserError(f"no folder {out.parent}", hint="make it first")
    if inbox is None and (truth is not None or model):
        option = "--model MODEL" if truth is None else "--truth FOLDER"
        raise UserError(
            f"{option.split()[0]} says what an inbox cannot show", hint=f"fedaudit init --from INBOX {option}"
        )
    if inbox is not None:
        from fedaudit.audit.case.truth import describe_left_out
        from fedaudit.audit.importing.first_subject import write_first_subject

        durable.write(out, write_first_subject(inbox, truth, model).encode())
        for line in describe_left_out(truth):
            say(line)
        say(f"{out}: correct what is guessed")
        say(name_next("import", inbox, "--subject", out, *(("--truth", truth) if truth else ())))
        return
    if table is not None:
        from fedaudit.audit.cli.table_starter import write_first_table

        schema = out.with_name(f"{table.stem}.schema.yaml")
        if schema.exists():
            raise UserError(
                f"{schema} is there already", hint="name a file in another folder, or remove the schema"
            )
        texts = write_first_table(table, out, schema)
        for file, text in zip((schema, out), texts, strict=True):
            durable.write(file, text.encode())
        say(f"{schema}: correct what is guessed")
        say(name_next("run", out))
        return
    durable.write(out, STARTER.replace("THIS_FILE", str(out)).encode())
    say(f"{out}: read it")
    say(name_next("plan", out))


@reader(
    writes=["out"],
    own=["config", "subject"],
    reads=["."],
    target=lambda given: given.get("out") or Path("runs") / given["inbox"].resolve().name,
    works=True,
)
def import_(
    inbox: Annotated[Path, typer.Argument(metavar="INBOX", help="the folder that a recorder wrote")],
    subject: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="what its operator states; default: written of the inbox, and the audit follows"),
    ] = None,
    truth: Annotated[Optional[Path], typer.Option(help="folder of clients' examples, own.npz, heldout/")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option(help="run folder; default runs/NAME of the inbox")] = None,  # noqa: UP045
    config: Annotated[Optional[Path], typer.Option(help="attacks, policy, seed and so on")] = None,  # noqa: UP045
    base: Annotated[Optional[Path], typer.Option(help="weights that nobody sends, safetensors")] = None,  # noqa: UP045
    model: Model = "",
    trust: Trust = False,
) -> None:
    """Check a recorded federation and make a run folder of it.

    Every byte and every statement is checked.

    Without --subject it writes one into the run folder, every line seen or guessed, asks on a terminal for the
    network, lists what else nobody stated, and runs the audit, with the exit codes of `run`.
    """
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.case.truth import describe_left_out
    from fedaudit.audit.cli.audit import Asked, finish_audit
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.importing.first_subject import list_unseen
    from fedaudit.audit.phases.import_ import (
        SUBJECT,
        ImportSources,
        bring,
        list_copies,
        read_settings,
        state_inbox,
    )
    from fedaudit.reports.format import describe_unread

    if subject is not None and model:
        raise UserError("--model belongs to an import without --subject", hint="state model in that file")
    if subject is None and not model and sys.stdin.isatty() and sys.stdout.isatty():
        question = "the network, as module:Class or a name of ours (empty: not stated)"
        model = typer.prompt(question, default="", show_default=False)
    sources = ImportSources(inbox=inbox, subject=subject, model=model, truth=truth, base=base)
    stated, text = state_inbox(sources, read_settings(config), config, trust=trust)
    copies = [f"{name}={path}" for name, path in list_copies(stated).items()]
    folder = RunDir.create(out or Path("runs") / inbox.resolve().name)
    with progress() as report_progress:
        found = bring(folder.path, stated, sources, report_progress, text=text)
    say(f"{found.messages:,} messages of {found.recorder or 'an unnamed recorder'}: {folder.path}")
    for line in describe_left_out(truth):
        say(line)
    for one in found.unread[:MOST_UNREAD]:
        say(f"unread: {one.sender}, round {one.round + 1}: {one.why}")
    if unread := describe_unread(found):
        say(f"unread: {unread} They lie in {folder.artifacts} as they came.")
    for check in found.checks:
        say(f"{check.status}: {check.title}: {check.text}")
    if stated.matrix is not None:
        from fedaudit.audit.robustness.replayed_matrix import count_replays

        replays = count_replays(stated.matrix, max(1, found.clients))
        say(f"forged uploads: up to {replays} replays of one round, beside what attackers try on each rule")
    if subject is not None:
        data = [word for entry in copies for word in ("--data", entry)]
        say(name_next("run", folder.path, *(["--trust-plugins"] if trust else []), *data))
        return
    for line in list_unseen(model, has_truth=truth is not None):
        say(f"not stated: {line}")
    say(f"to state more: correct a copy of {folder.path / SUBJECT}, and import again with --subject COPY")
    finish_audit(Asked(folder.path, data=copies, trust=trust))


def _name_free(path: Path) -> Path:
    """The first of audit-2.yaml, audit-3.yaml, ... that is not there."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(name for name in names if not name.exists())
