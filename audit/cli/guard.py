"""The command that a site runs on what is about to leave it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from fedaudit.audit.cli.app import reader, say, tools


class OnAlarm(StrEnum):
    """What becomes of a message with an alarm."""

    STOP = "stop"
    WARN = "warn"
    PASS = "pass"


@reader(tools, files=["log"])
def guard(
    outbox: Annotated[
        Path, typer.Argument(metavar="OUTBOX", help="folder of the site's recorder; its last upload is checked")
    ],
    truth: Annotated[Path, typer.Option(help="npz of the site's own examples, x and y, before normalisation")],
    key: Annotated[Path, typer.Option(help="the site's private Ed25519 key, PEM, for the log")],
    log: Annotated[Path, typer.Option(help="file that gets a signed line")] = Path("guard.jsonl"),
    on_alarm: Annotated[OnAlarm, typer.Option(help="what becomes of a message with an alarm")] = OnAlarm.STOP,
    noise_std: Annotated[
        float, typer.Option(min=0, help="standard deviation of the noise claimed on every number of the update")
    ] = 0,
    clean: Annotated[Optional[Path], typer.Option(help="OUTBOX of the message before its noise")] = None,  # noqa: UP045
) -> None:
    """Check the last upload of a site before it leaves.

    Exit code 1 where it must not.
    """
    from fedaudit.audit.attestation import envelope
    from fedaudit.audit.case.truth import load_examples
    from fedaudit.audit.importing.guard import Outgoing, check_outgoing, write_line
    from fedaudit.reports import format as fmt

    private, sent = envelope.private_key(key), Outgoing.read(outbox)
    alarms = check_outgoing(
        sent, load_examples(truth), noise_std=noise_std, clean=Outgoing.read(clean) if clean else None
    )
    action = write_line(log, private, sent, alarms, on_alarm.value)
    for alarm in alarms:
        say(f"{alarm.check}: {alarm.text}")
    found = fmt.plural(len(alarms), "alarm")
    say(f"{action}: {sent.line['message']} of {sent.line['sender']}; {found}; signed in {log}")
    if action == "stop":
        raise typer.Exit(1)
