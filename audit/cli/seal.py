"""The command that signs an audit, with a key that lies in a file."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fedaudit.audit.cli.app import reader, say, tools
from fedaudit.audit.cli.arguments import Data, Trust
from fedaudit.audit.cli.review import FailOn, Policy, Require, Waivers, severity


@reader(tools, writes=["run"])
def seal(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run folder")],
    key: Annotated[Path, typer.Option(help="your private Ed25519 key, PEM")],
    policy: Policy = "default",
    fail_on: FailOn = None,
    require: Require = None,
    waivers: Waivers = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="for how many days the seal counts")] = 365,
    model: Annotated[str, typer.Option(help="the released model's file in the folder")] = "",
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Verify a run, then sign its verdict, model and reports."""
    from functools import partial

    from fedaudit.audit.attestation import envelope
    from fedaudit.audit.attestation.seal import Signer, seal_run
    from fedaudit.audit.cli.gate import Reviewer, judge_folder
    from fedaudit.audit.phases.report import write_reports

    private = envelope.private_key(key)
    reviewer = Reviewer(
        policy=policy,
        fail_on=severity(fail_on),
        require=require,
        waivers=waivers,
        trust=trust,
        data=tuple(data or ()),
    )
    judged = judge_folder(run, reviewer)
    signer = Signer(
        key=private,
        expires=datetime.now(UTC).date() + timedelta(days=days),
        required=judged.required,
        model=model,
    )
    folder = judged.folder
    with folder.lock():
        write = partial(write_reports, folder.path, judged.config.sections, judged.config.report)
        record = seal_run(folder.path, judged.result, signer, write)
    say(judged.result.verdict.line)
    say(f"sealed: {folder.path / 'seal.json'}, counts until {record.expires}")
    say(f"signer: SHA-256 {record.signer}")
    for name, digest in record.digests.items():
        say(f"{name}: SHA-256 {digest}")
    say(f"a reviewer who has your public key checks it: fedaudit verify {folder.path} --key KEY.pub.pem")
