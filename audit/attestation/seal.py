"""A seal: who holds a key says that these files are an audit's: the released model, audit.json, reports and BOM.

seal.json is a DSSE envelope (audit/attestation/envelope.py) around an in-toto Statement v1 with the Test Result
predicate v0.1 (https://in-toto.io/attestation/test-result/v0.1). Its subjects are SHA-256 of the files; its
configuration names the policy, the config and the root of the chain. A reviewer who has the public key from
elsewhere needs no root.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field

from fedaudit.audit.attestation import chain, envelope
from fedaudit.audit.case.reading import parse
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.record import SealRecord
from fedaudit.reports.result import AuditResult

FILE, BOM = "seal.json", "bom.cdx.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD = "application/vnd.in-toto+json"
Decided = Literal["PASSED", "WARNED", "FAILED"]


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Descriptor(Form):
    """A ResourceDescriptor: a name and digests."""

    name: str
    digest: dict[str, str]


class TestResult(Form):
    """The predicate. A test is a finding; it failed where something was demonstrated, warned where it is open."""

    result: Decided
    configuration: list[Descriptor]
    passedTests: list[str]
    warnedTests: list[str]
    failedTests: list[str]


class Statement(Form):
    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[Descriptor] = Field(min_length=1)
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"]
    predicate: TestResult


def seal(
    run: RunDir,
    result: AuditResult,
    decided: Decided,
    key: Ed25519PrivateKey,
    render: Callable[[SealRecord], Iterable[Path]],
    model: str = "",
) -> SealRecord:
    """Render the reports with the signer's name and the digests in them, and sign; `result` is the reviewed one.

    `render` writes the reports with a record in them and returns their paths. `model` is the released model's
    file in the folder; by default what `released` finds.
    """
    named = model or released(run)
    record = SealRecord(
        signer=envelope.key_id(key.public_key()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        root=chain.read_chain(run).root(),
        digests={name: _digest(run, name) for name in ("audit.json", named)},
        model=named,
    )
    written = [p.name for p in render(record)]
    chain.end(run, "report")
    sections = [catalog.load("sections", "limits")]
    sealed = result.model_copy(update={"seal": record})
    run.write(run.path / BOM, catalog.load("renderers", "cyclonedx")().render(compose(sealed, sections)))
    subjects = [*record.digests, *sorted(written), BOM]
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": _digest(run, name)}} for name in subjects],
        "predicateType": PREDICATE,
        "predicate": _predicate(run, result, decided, record.root).model_dump(),
    }
    body = json.dumps(statement, sort_keys=True, ensure_ascii=False).encode()
    run.write_json(run.path / FILE, envelope.signed(PAYLOAD, body, key).model_dump())
    return record


def released(run: RunDir) -> str:
    """The last whole model that left the server, as a path in the folder; else the last checkpoint."""
    sent = [m["message"] for m in manifest(run.artifacts) if "message" in m and Kind.GLOBAL_MODEL in m["kinds"]]
    name = f"artifacts/{sent[-1]}.safetensors" if sent else "checkpoint/state.safetensors"
    if not run.inside(name).is_file():
        raise UserError(
            f"{run.path} holds no released model", hint="name its file in the folder with --model, or record more"
        )
    return name


def checked(run: RunDir, key: Ed25519PublicKey) -> Statement:
    """The statement of a folder's seal; raises UserError where it is not by this key or not about these files."""
    if not (run.path / FILE).is_file():
        raise UserError(f"{run.path} has no {FILE}", hint="its owner seals it with `fedaudit seal`")
    body = envelope.opened(run.read(run.path / FILE, envelope.Envelope), PAYLOAD, key)
    statement = parse(body, Statement, f"the statement in {run.path / FILE}")
    for subject in statement.subject:
        if _digest(run, subject.name) != subject.digest.get("sha256"):
            raise UserError(
                f"{run.path / subject.name} is not the one that was sealed: its SHA-256 differs",
                hint="do not decide from this folder; ask for the one that was sealed",
            )
    root = next((c.digest.get("sha256") for c in statement.predicate.configuration if c.name == "chain"), "")
    if root != chain.read_chain(run).root():
        raise UserError(
            f"{run.chain} is not the one that was sealed: its root differs", hint="ask for the sealed folder"
        )
    if "audit.json" not in {s.name for s in statement.subject}:
        raise UserError(f"{run.path / FILE} says nothing of audit.json", hint="ask for a seal of the audit")
    return statement


def _predicate(run: RunDir, result: AuditResult, decided: Decided, root: str) -> TestResult:
    outcomes: dict[str, list[str]] = {}
    for finding in result.findings:
        outcomes.setdefault(finding.outcome, []).append(finding.id)
    return TestResult(
        result=decided,
        configuration=[
            Descriptor(name=f"policy {result.policy.name}", digest={"sha256": result.policy.sha256}),
            Descriptor(name="config.yaml", digest={"sha256": _digest(run, "config.yaml")}),
            Descriptor(name="chain", digest={"sha256": root}),
        ],
        passedTests=outcomes.get("not_demonstrated", []),
        warnedTests=[*outcomes.get("inconclusive", []), *outcomes.get("failed", [])],
        failedTests=outcomes.get("demonstrated", []),
    )


def _digest(run: RunDir, name: str) -> str:
    path = run.inside(name)
    if not path.is_file():
        raise UserError(f"{run.path / name} is missing", hint="a seal is about files that are there")
    return sha256(path)
