"""A reviewer's own attestation: that this audit was verified, by which policy, and what came of it.

A Verification Summary Attestation (SLSA v1.0, https://slsa.dev/verification_summary/v1): an in-toto Statement in
a DSSE envelope, signed by the reviewer. Levels are ours, since none of SLSA's tracks is about privacy. The file
lies beside the folder, never in it.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedaudit.audit.attestation import envelope
from fedaudit.audit.attestation.chain import read_chain
from fedaudit.audit.attestation.record import SEAL, digest_record
from fedaudit.audit.attestation.seal import PAYLOAD, STATEMENT, find_release
from fedaudit.audit.case.environment import versions
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.fl.runtime import durable
from fedaudit.reports.result import AuditResult

PREDICATE = "https://slsa.dev/verification_summary/v1"
SLSA_VERSION = "1.0"
FAILED = "FAILED"


def open_signer(path: Path | None) -> Ed25519PrivateKey | None:
    """The reviewer's private key; None where none is named."""
    return None if path is None else envelope.private_key(path)


def attest(
    path: Path, key: Ed25519PrivateKey, folder: Path, result: AuditResult, *, replayed: bool, sealed: bool
) -> None:
    """Write the attestation of a verdict to `path`, which is not in the folder."""
    body = json.dumps(
        make_summary(key, folder, result, replayed=replayed, sealed=sealed), sort_keys=True, ensure_ascii=False
    )
    made = envelope.sign(PAYLOAD, body.encode(), key)
    durable.write(path, made.model_dump_json(indent=1).encode() + b"\n")


def make_summary(
    key: Ed25519PrivateKey, folder: Path, result: AuditResult, *, replayed: bool, sealed: bool
) -> dict[str, Any]:
    """The statement: its subjects are the folder's record, audit.json and the released model.

    `sealed`: the owner's seal was checked as well, and is an input.
    """
    passed = result.verdict.word.exit_code == 0
    levels = [f"FEDAUDIT_{result.verdict.word.upper()}", *(["FEDAUDIT_REPLAYED"] if replayed else [])]
    files = [
        name for name in ("audit.json", find_release(folder / "artifacts")) if name and (folder / name).is_file()
    ]
    subjects = {"record": digest_record(folder)} | {name: sha256(RunDir(folder).inside(name)) for name in files}
    decision, policy = result.verdict, result.policy
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "verifier": {
                "id": f"urn:sha256:{envelope.key_id(key.public_key())}",
                "version": {"fedaudit": versions()["fedaudit"]},
            },
            "timeVerified": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "resourceUri": f"urn:sha256:{read_chain(folder).content()}",
            "policy": {
                "name": f"{policy.name}, version {policy.version}",
                "uri": f"urn:sha256:{policy.sha256}",
                "digest": {"sha256": policy.sha256},
                "annotations": {"bar": decision.bar, "accepted": decision.accepted, "unmet": decision.unmet},
            },
            "inputAttestations": [_describe_seal(folder)] if sealed else [],
            "verificationResult": "PASSED" if passed else FAILED,
            "verifiedLevels": levels if passed else [FAILED],
            "slsaVersion": SLSA_VERSION,
        },
    }


def _describe_seal(path: Path) -> dict[str, Any]:
    return {"uri": SEAL, "digest": {"sha256": sha256(path / SEAL)}}
