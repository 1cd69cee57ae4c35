"""Commands of a reviewer, who believes nothing of a folder that can be computed again: check and verify."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedaudit.audit.cli.app import print_document, reader, say
from fedaudit.audit.cli.arguments import Data, RunFolder, Trust
from fedaudit.audit.settings import consent
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedaudit.audit.attestation.seal import Statement
    from fedaudit.audit.cli.gate import Judged
    from fedaudit.reports.result import AuditResult


CLOCKS_DIFFER = timedelta(minutes=5)  # between a signer and a time-stamping authority


class Format(StrEnum):
    """How `check` prints its decision."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    MARKDOWN = "markdown"


Policy = Annotated[str, typer.Option(help="your policy: a name, or the path of a .yaml file")]
TermsFile = Annotated[Optional[Path], typer.Option(help="your terms, a file: bar, attacks, waivers")]  # noqa: UP045
Baseline = Annotated[Optional[Path], typer.Option(help="a run: only what is new or worse counts")]  # noqa: UP045


Sign = Annotated[Optional[Path], typer.Option(metavar="KEY", help="sign it: your private Ed25519 key, PEM")]  # noqa: UP045


@reader(writes=["sealed"], target=lambda given: given["run"] if given.get("sign") else None)
def check(
    run: RunFolder,
    policy: Policy = "default",
    terms: TermsFile = None,
    baseline: Baseline = None,
    format: Annotated[Format, typer.Option(help="of what is printed")] = Format.TEXT,
    sign: Sign = None,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Decide about a deployment: quick, for every build.

    Derives the verdict once more from evidence/ and the ledger under your policy, and refuses a folder that has
    another, lacks a message or a phase, or does not fit its own digests. Believes what the attacks measured, and
    that a report shows this verdict if chain.json has its digest; `verify` proves more. With --sign the owner
    seals verdict, model and reports in seal.json, for a year.
    Exit code 0 ready (or with conditions), 1 not ready, 2 error, 3 cannot tell.
    """
    from fedaudit.audit.attestation import envelope
    from fedaudit.audit.cli.gate import Reviewer, describe, judge_folder

    key = envelope.private_key(sign) if sign else None

    reviewer = Reviewer(policy=policy, terms=terms, baseline=baseline, trust=trust, data=tuple(data or ()))
    given = {"terms": terms, "baseline": baseline, "sign": sign, "policy": policy != "default"}
    with _telling_earlier(run, None, given):
        judged = judge_folder(run, reviewer)
    if format is Format.TEXT:
        for line in (*_list_verdict(judged.result), *describe(judged)):
            say(line)
    else:
        print_document(_export(judged.result, format))
    if key is not None:
        for line in _seal(judged, key):
            say(line, err=format is not Format.TEXT)
    raise typer.Exit(exit_code(judged.result))


@reader(
    files=["attested"], target=lambda given: name_summary(given["run"]) if given.get("sign") else None, works=True
)
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder; with --seal the file of a model")],
    policy: Policy = "default",
    terms: TermsFile = None,
    digest: Annotated[str, typer.Option(help="of content or record, that you were given apart from it")] = "",
    key: Annotated[Optional[Path], typer.Option(help="public key of who sealed it, PEM")] = None,  # noqa: UP045
    authority: Annotated[Path | None, typer.Option(help="root certificate of who stamped the seal, PEM")] = None,
    seal: Annotated[Optional[Path], typer.Option(help="seal.json: is the file RUN the model of it?")] = None,  # noqa: UP045
    replay: Annotated[bool, typer.Option("--replay", help="make the run again and judge what comes out")] = False,
    sign: Sign = None,
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Decide as `check` does and prove more: reports, seals, attacks.

    With --seal say whether a model is the audited one.
    Renders the reports once more and names those that differ. With --key everything in the folder is what the
    signer sealed, with --digest what you hold the digest of; with --replay the run is made again, training,
    attacks and accounts, every file is compared, and what came out is judged. With --sign your own attestation is
    written beside the folder, as RUN.vsa.json.
    Exit code 0 ready (or with conditions), 1 not ready, 3 cannot tell; 2 names the first thing that does not fit.
    """
    from fedaudit.audit.attestation import summary
    from fedaudit.audit.attestation.seal import check_files
    from fedaudit.audit.cli.gate import Reviewer, describe, describe_seal, judge_folder

    if seal is not None:
        unheeded: dict[str, object] = {"policy": policy != "default", "terms": terms}
        unheeded |= {"digest": digest, "authority": authority, "replay": replay, "sign": sign}
        _verify_model(run, seal, key, [name for name, value in unheeded.items() if value])
    signer = summary.open_signer(sign)
    statement = _check_seal(run, key)
    stamped = _check_timestamp(run, statement, authority)
    more = [*describe_seal(statement), stamped] if statement else []
    given = {"digest": digest, "terms": terms, "replay": replay, "sign": sign}
    given["policy"] = policy != "default"
    reviewer = Reviewer(
        policy=policy, terms=terms, digest=digest, trust=trust, data=tuple(data or ()), render=True
    )
    with _telling_earlier(run, statement, given, more):
        judged = judge_folder(run, reviewer)
    if statement is not None:
        check_files(judged.folder.path, statement)
    result, lines = _replay(judged, policy) if replay else (judged.result, [])
    word = more or _describe_trust(digest, judged)
    for line in (*_list_verdict(result), *describe(judged, statement, replayed=replay), *lines, *word):
        say(line)
    if signer is not None:
        made = name_summary(judged.folder.path)
        summary.attest(made, signer, judged.folder.path, result, replayed=replay, sealed=statement is not None)
        say(f"attested: {made}")
    raise typer.Exit(exit_code(result))


def name_summary(run: Path) -> Path:
    """Where the reviewer's attestation goes: beside the folder that it is about."""
    return run.resolve().with_name(f"{run.resolve().name}.vsa.json")


def _seal(judged: "Judged", key: "Ed25519PrivateKey") -> Iterator[str]:
    """Render the reports with the seal in them, sign them with verdict and model, and say so."""
    from fedaudit.audit.attestation.record import SEAL
    from fedaudit.audit.attestation.seal import seal_run
    from fedaudit.audit.phases.report import write_reports

    folder = judged.folder
    with folder.lock():
        write = partial(write_reports, folder.path, judged.config.report)
        record = seal_run(folder.path, judged.result, key, judged.required, write)
    yield f"sealed: {folder.path / SEAL}, counts until {record.expires}"
    yield f"signer: SHA-256 {record.signer}"
    yield from (f"{name}: SHA-256 {digest}" for name, digest in record.digests.items())
    yield f"a reviewer who has your public key checks it: fedaudit verify {folder.path} --key KEY.pub.pem"


def exit_code(result: "AuditResult") -> int:
    """Of the one verdict."""
    return result.verdict.word.exit_code


def _list_verdict(result: "AuditResult") -> list[str]:
    """The summary, what the verdict rests on, and the findings at or above the bar, one a line."""
    from fedaudit.audit.cli.ending import summarise

    failing = [f for f in result.findings if f.id in result.verdict.failing]
    lines = [*summarise(result), f"why: {result.verdict.sentence}"]
    return [*lines, *(f"  {f.severity:<9} {f.id}: {f.title}" for f in failing)]


def _check_seal(run: Path, key: Path | None) -> "Statement | None":
    """What the seal of a folder says, before anything else of it is read; None where no key was given."""
    if key is None:
        return None
    from fedaudit.audit.attestation import envelope
    from fedaudit.audit.attestation.seal import check_seal
    from fedaudit.audit.case.run_folder import RunDir

    return check_seal(RunDir.open(run).path, envelope.public_key(key))


def _check_timestamp(run: Path, statement: "Statement | None", authority: Path | None) -> str:
    """By whose word the seal was there, and when, as a line."""
    from fedaudit.audit.attestation.record import TOKEN
    from fedaudit.audit.attestation.seal import read_timestamp

    if authority is None or statement is None:
        if authority is not None:
            raise UserError("a time-stamp is about a seal", hint="add --key KEY.pub.pem")
        return "  time: by the signer's clock; --authority CERTIFICATE checks seal.tsr, a time-stamp (RFC 3161)"
    at = read_timestamp(run / TOKEN, authority)
    if at + CLOCKS_DIFFER < datetime.fromisoformat(statement.record.at):
        raise UserError(
            f"{run / TOKEN} is of {at.isoformat()}, before the seal was made by its own words",
            hint="do not believe the time of this seal",
        )
    return f"  time: it was there at {at.isoformat()}, by a time-stamp"


@contextmanager
def _telling_earlier(
    run: Path, statement: "Statement | None", given: Mapping[str, object], more: Sequence[str] = ()
) -> Iterator[None]:
    """Where this version cannot derive what another one judged, say what that was, and exit.

    Raises UserError for options that are `given` and decide nothing about such a folder.
    """
    from fedaudit.audit.attestation.earlier import describe_earlier, is_earlier, is_of_other_code, read_earlier
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.reports.decision import Word

    folder, why = RunDir.open(run).path, "the folder has the form of an earlier version"
    if not is_earlier(folder):
        try:
            yield
        except consent.UnconsentedError:
            raise
        except UserError as error:
            if any(given.values()) or not is_of_other_code(folder):
                raise
            why = error.sentence
        else:
            return
    for name in (name for name, value in given.items() if value):
        raise UserError(
            f"--{name} decides about an audit that is derived here, and {run} was made in an earlier form",
            hint="leave it out, or audit the federation again with this version",
        )
    found = read_earlier(folder, statement)
    for line in (*describe_earlier(found, why, is_signed=statement is not None), *more):
        say(line)
    raise typer.Exit(found.word.exit_code if statement else Word.CANNOT_TELL.exit_code)


def _replay(judged: "Judged", policy: str) -> "tuple[AuditResult, list[str]]":
    """The run once more: what follows from it, and how the folder compares."""
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.review.replay import RunReplay
    from fedaudit.audit.verdict.policy import load_policy

    with TemporaryDirectory() as place, progress() as report_progress:
        replay = RunReplay(judged.folder.path, Path(place) / "run", judged.config)
        replay.make(report_progress)
        replayed = replay.conclude(load_policy(policy))
    judged.decide_again(replayed.result, policy)
    replayed.confirm(judged.result)
    return replayed.result, list(replayed.lines)


def _describe_trust(digest: str, judged: "Judged") -> list[str]:
    """How far the folder can be trusted without a key."""
    given = digest.lower().removeprefix("sha256:")
    if given == judged.review.record:
        return ["the record is the one that you gave: nothing in the folder changed since that was taken"]
    if given:
        return ["the content is the one that you gave; times, commit and hardware are stated by the owner"]
    return [
        "the chain is consistent, no more: its owner can make it anew; "
        "--digest DIGEST or --key PUBLIC compare with what you hold"
    ]


def _verify_model(model: Path, seal: Path, key: Path | None, unheeded: list[str]) -> None:
    """Say whether a file is the model of a seal, and exit with the verdict that was signed.

    Raises UserError for options that are `unheeded` here: only the signer's word is behind that verdict.
    """
    if unheeded:
        raise UserError(
            f"--{unheeded[0]} decides about a run folder, and a seal has its signer's verdict without evidence",
            hint="leave it out, or verify the folder: fedaudit verify RUN --key KEY.pub.pem",
        )
    from fedaudit.audit.attestation.deployed import check_model
    from fedaudit.audit.cli.gate import describe_seal
    from fedaudit.reports.decision import Word

    statement = check_model(model, seal, key)
    word = Word(statement.record.verdict)
    say(f"{model} is the model that was audited: {statement.record.model}. {word.words}")
    for line in describe_seal(statement):
        say(line)
    raise typer.Exit(word.exit_code)


def _export(result: "AuditResult", format: Format) -> str:
    from fedaudit.audit.settings import catalog
    from fedaudit.audit.verdict.disclosure import withhold
    from fedaudit.reports.document import compose

    result = withhold(result, "redacted", {})  # whoever reads a log of checks needs no picture
    document = compose(result, [catalog.load("sections", "policy")])
    rendered: bytes = catalog.load("renderers", format.value)().render(document)
    return rendered.decode()
