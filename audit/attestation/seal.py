"""A seal: who holds a key says that this is an audit, when it was made, by which bar, and until when that counts.

seal.json is a DSSE envelope (audit/attestation/envelope.py) around an in-toto Statement v1 with the Test Result
predicate v0.1 (https://in-toto.io/attestation/test-result/v0.1). Its subjects are SHA-256 of the model,
audit.json, the reports and the files that hold times and registrations. Its configuration names the
policy, the config, both digests of the folder (audit/attestation/record.py) and, as annotations, the seal's own
record. A reviewer who has the public key from elsewhere needs no digest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from fedaudit.audit.attestation import chain, envelope
from fedaudit.audit.attestation.record import SEAL, digest_record
from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.environment import versions
from fedaudit.audit.case.reading import parse
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.case.schemas import Form
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.decision import Word
from fedaudit.reports.record import SealRecord
from fedaudit.reports.result import AuditResult

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD = "application/vnd.in-toto+json"
SIGNED_FILES = ("audit.json", "config.yaml", "chain.json", "phases.json", "environment.json", "policy.json")
NOTHING = "none"
COUNTS = timedelta(days=365)
RESULTS = {Word.READY: "PASSED", Word.WITH_CONDITIONS: "WARNED", Word.NOT_READY: "FAILED"}
ASK = "do not decide from this folder; ask for the one that was sealed"


class Descriptor(Form):
    """A ResourceDescriptor: a name, digests and annotations."""

    name: str
    digest: dict[str, str]
    annotations: dict[str, Any] | None = None


class TestResult(Form):
    """The predicate. A test is a finding; it failed where something was demonstrated, warned where it is open."""

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: list[Descriptor]
    passedTests: list[str]
    warnedTests: list[str]
    failedTests: list[str]

    def describe(self, name: str) -> Descriptor:
        """One entry of the configuration; raises UserError where there is none."""
        for descriptor in self.configuration:
            if descriptor.name == name:
                return descriptor
        raise UserError(
            f"the seal does not name its {name}", hint="ask for one that this version of fedaudit made"
        )


class Statement(Form):
    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[Descriptor] = Field(min_length=1)
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"]
    predicate: TestResult

    @property
    def record(self) -> SealRecord:
        """What the signer says of the seal itself."""
        return parse(
            json.dumps(self.predicate.describe("seal").annotations).encode(), SealRecord, "the record of the seal"
        )


def seal_run(
    folder: Path,
    result: AuditResult,
    key: Ed25519PrivateKey,
    required: Sequence[str],
    render: Callable[[SealRecord], Iterable[str]],
) -> SealRecord:
    """Render the reports with the seal's record in them, and sign.

    `result` is the reviewed one, with its decision; `required` are attacks that had to run. `render` writes the
    reports and returns their names.
    """
    record = _make_record(folder, result, key, required)
    written = sorted(render(record))
    chain.end(folder, "report")
    statement = {
        "_type": STATEMENT,
        "subject": [_describe(folder, name) for name in (*SIGNED_FILES, record.model, *written)],
        "predicateType": PREDICATE,
        "predicate": _make_predicate(folder, result, record).model_dump(exclude_none=True),
    }
    body = json.dumps(statement, sort_keys=True, ensure_ascii=False).encode()
    RunDir(folder).write_json(folder / SEAL, envelope.sign(PAYLOAD, body, key).model_dump())
    return record


def find_release(artifacts: Path) -> str:
    """The last whole model that left the server, as a path in the folder; empty where none was recorded."""
    sent = [m["message"] for m in manifest(artifacts) if "message" in m and Kind.GLOBAL_MODEL in m["kinds"]]
    return f"artifacts/{sent[-1]}.safetensors" if sent else ""


def read_statement(folder: Path) -> Statement | None:
    """What a folder's seal says, signed or not; None where there is no seal."""
    path = folder / SEAL
    if not path.is_file():
        return None
    sealed = RunDir(folder).read(path, envelope.Envelope)
    return parse(envelope.payload(sealed), Statement, f"the statement in {path}")


def read_record(folder: Path) -> SealRecord | None:
    """What a folder's seal says of itself, signed or not; None where there is no seal."""
    statement = read_statement(folder)
    return None if statement is None else statement.record


def open_seal(seal: bytes, key: Ed25519PublicKey, now: datetime, where: str) -> Statement:
    """The statement of a seal; raises UserError where it is not by this key, or does not count now."""
    body = envelope.open_envelope(parse(seal, envelope.Envelope, where), PAYLOAD, key)
    statement = parse(body, Statement, f"the statement in {where}")
    record = statement.record
    if record.signer != envelope.key_id(key):
        raise UserError(f"{where} names another signer, {record.signer}", hint=ASK)
    try:
        expired, early = date.fromisoformat(record.expires) < now.date(), datetime.fromisoformat(record.at) > now
    except (ValueError, TypeError) as error:
        raise UserError(f"{where} has no readable times: {error}", hint=ASK) from error
    if expired:
        raise UserError(f"{where} expired on {record.expires}", hint="ask for a new audit, sealed today")
    if early:
        raise UserError(f"{where} was made at {record.at}, which is yet to come", hint="check both clocks")
    return statement


def check_seal(folder: Path, key: Ed25519PublicKey, now: datetime | None = None) -> Statement:
    """The statement of a folder's seal; raises UserError where it is not by this key or does not count now."""
    if not (folder / SEAL).is_file():
        raise UserError(f"{folder} has no {SEAL}", hint="its owner seals it with `fedaudit check RUN --sign KEY`")
    content = RunDir(folder).inside(SEAL).read_bytes()
    return open_seal(content, key, now or datetime.now(UTC), str(folder / SEAL))


def read_timestamp(token: Path, authority: Path) -> datetime:
    """When a time-stamp (RFC 3161) says that the seal beside it was there.

    `authority` is a root certificate in PEM. Raises UserError where the token is not about the seal, or not by
    this authority.
    """
    try:
        import rfc3161_client
    except ImportError as error:
        raise UserError(
            "a time-stamp is read by rfc3161-client, which is not installed",
            hint="pip install 'fedaudit[timestamps]'",
        ) from error
    try:
        root = x509.load_pem_x509_certificate(authority.read_bytes())
        response = rfc3161_client.decode_timestamp_response(token.read_bytes())
        verifier = rfc3161_client.VerifierBuilder().add_root_certificate(root).build()
        verifier.verify_message(response, token.with_name(SEAL).read_bytes())
        at: datetime = response.tst_info.gen_time
        return at
    except (OSError, ValueError, rfc3161_client.VerificationError) as error:
        raise UserError(
            f"{token} is no time-stamp of the seal by the authority of {authority}: {error!s:.200}",
            hint="ask the authority again; `openssl ts -reply -in seal.tsr -text` shows what it says",
        ) from error


def find_changed(folder: Path, statement: Statement) -> Iterator[str]:
    """Files of the folder that are not those that the statement names, as sentences."""
    for subject in statement.subject:
        if _digest(folder, subject.name) != subject.digest.get("sha256"):
            yield f"{folder / subject.name} is not the one that was sealed: its SHA-256 differs"


def check_files(folder: Path, statement: Statement) -> None:
    """Raises UserError that names what in the folder is not as it was sealed."""
    for problem in find_changed(folder, statement):
        raise UserError(problem, hint=ASK)
    if missing := {*SIGNED_FILES, statement.record.model} - {s.name for s in statement.subject}:
        raise UserError(
            f"{folder / SEAL} says nothing of {sorted(missing)[0]}", hint="ask for a seal of the audit"
        )
    require_digests(folder, statement, chain.read_chain(folder).content(), digest_record(folder))


def require_digests(folder: Path, statement: Statement, content: str, record: str) -> None:
    """Raises UserError where these digests of the folder are not those that were sealed."""
    for name, now_is in (("content", content), ("record", record)):
        if statement.predicate.describe(name).digest.get("sha256") != now_is:
            raise UserError(
                f"{folder} is not the folder that was sealed: the digest of its {name} differs", hint=ASK
            )


def _make_record(
    folder: Path, result: AuditResult, key: Ed25519PrivateKey, required: Sequence[str]
) -> SealRecord:
    decision = result.verdict
    model = find_release(folder / "artifacts") or "checkpoint/state.safetensors"
    if not RunDir(folder).inside(model).is_file():
        raise UserError(
            f"{folder} holds no released model", hint="record kind global_model, which a seal is about"
        )
    now = datetime.now(UTC)
    return SealRecord(
        signer=envelope.key_id(key.public_key()),
        at=now.isoformat(timespec="seconds"),
        expires=(now.date() + COUNTS).isoformat(),
        tool=f"fedaudit {versions()['fedaudit']}",
        verdict=decision.word,
        policy=f"{result.policy.name}, version {result.policy.version}",
        policy_digest=result.policy.sha256,
        bar=decision.bar or NOTHING,
        required=list(required) or [NOTHING],
        accepted=dict(sorted(decision.accepted.items())),  # as the statement sorts them
        content=chain.read_chain(folder).content(),
        digests={name: _digest(folder, name) for name in sorted(("audit.json", model))},
        model=model,
    )


def _make_predicate(folder: Path, result: AuditResult, record: SealRecord) -> TestResult:
    outcomes: dict[str, list[str]] = {}
    for finding in result.findings:
        outcomes.setdefault(finding.outcome, []).append(finding.id)
    about = record.model_dump(mode="json")
    return TestResult(
        result=RESULTS.get(Word(record.verdict), "WARNED"),  # type: ignore[arg-type]
        configuration=[
            Descriptor(name=f"policy {result.policy.name}", digest={"sha256": result.policy.sha256}),
            Descriptor(name="config.yaml", digest={"sha256": _digest(folder, "config.yaml")}),
            Descriptor(name="content", digest={"sha256": record.content}),
            Descriptor(name="record", digest={"sha256": digest_record(folder)}),
            Descriptor(name="seal", digest={"sha256": of_value(about)}, annotations=about),
        ],
        passedTests=outcomes.get("not_demonstrated", []),
        warnedTests=[*outcomes.get("inconclusive", []), *outcomes.get("failed", [])],
        failedTests=outcomes.get("demonstrated", []),
    )


def _describe(folder: Path, name: str) -> dict[str, Any]:
    return Descriptor(name=name, digest={"sha256": _digest(folder, name)}).model_dump(exclude_none=True)


def _digest(folder: Path, name: str) -> str:
    path = RunDir(folder).inside(name)
    if not path.is_file():
        raise UserError(f"{folder / name} is missing", hint="a seal is about files that are there")
    return sha256(path)
