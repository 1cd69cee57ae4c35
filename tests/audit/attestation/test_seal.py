"""A seal: made with an offline key, checked with the public one; what changes after it is refused by name."""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from typer.testing import CliRunner, Result

from fedaudit.audit.attestation import envelope as dsse
from fedaudit.audit.attestation.chain import read_chain
from fedaudit.audit.attestation.record import digest_record
from fedaudit.audit.attestation.seal import check_files, check_seal, read_record
from fedaudit.audit.attestation.summary import make_summary
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.decision import Word
from tests.audit.attestation.test_fakes import original  # noqa: F401  (a fixture)

RUNNER = CliRunner()
# Of the protocol's own test vectors (secure-systems-lab/dsse, testvectors/vectors.json), key A of RFC 8032
PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
TYPE = "application/vnd.in-toto+json"
PAYLOAD = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ=="
SIGNATURE = "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="


def test_an_envelope_of_the_protocols_vectors_opens() -> None:
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(PUBLIC))
    good = dsse.Envelope(payload=PAYLOAD, payloadType=TYPE, signatures=[dsse.Signature(sig=SIGNATURE)])
    assert dsse.open_envelope(good, TYPE, key) == b'{"_type":"https://in-toto.io/Statement/v1"}'
    url_safe = "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw=="
    other = dsse.Envelope(payload="-_-_Pj8=", payloadType=TYPE, signatures=[dsse.Signature(sig=url_safe)])
    assert dsse.open_envelope(other, TYPE, key) == base64.b64decode("+/+/Pj8=")
    assert dsse.pae("application/vnd.exämple+json", b"")[:10] == b"DSSEv1 29 "


def test_a_signature_of_one_type_is_none_of_another() -> None:
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(PUBLIC))
    kind = "application/vnd.example.other+json"
    swapped = dsse.Envelope(payload=PAYLOAD, payloadType=kind, signatures=[dsse.Signature(sig=SIGNATURE)])
    for wanted in (TYPE, kind):
        with pytest.raises(UserError, match="the seal is"):
            dsse.open_envelope(swapped, wanted, key)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / f"{name}.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        (folder / f"{name}.pub.pem").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, public)
        )
    return folder


@pytest.fixture(scope="module")
def once(original: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("sealed") / "run"
    shutil.copytree(original, folder)
    done = RUNNER.invoke(app, ["check", str(folder), "--sign", str(keys / "mine.pem"), "--trust-plugins"])
    assert done.exit_code == 3 and "signer: SHA-256 " in done.stdout, done.output
    return folder


@pytest.fixture
def sealed(once: Path, tmp_path: Path) -> Path:
    shutil.copytree(once, tmp_path / "run")
    return tmp_path / "run"


def verify(folder: Path, key: Path) -> Result:
    return RUNNER.invoke(app, ["verify", str(folder), "--trust-plugins", "--key", str(key)])


def test_a_sealed_run_is_verified_with_the_public_key(sealed: Path, keys: Path) -> None:
    done = verify(sealed, keys / "mine.pub.pem")
    assert done.exit_code == 3, done.output  # an attack could not tell
    assert "seal: WARNED, cannot tell, by fedaudit" in done.stdout
    files = ("audit.json", "chain.json", "phases.json", "environment.json", "report.json")
    for name in files:
        digest = hashlib.sha256((sealed / name).read_bytes()).hexdigest()
        assert f"{name}: SHA-256 {digest}" in done.stdout
    assert "bar: high, by policy default, version" in done.stdout and "required: none" in done.stdout
    assert "counts until " in done.stdout and "signed by " in done.stdout


def test_the_statement_is_one_of_in_toto(sealed: Path) -> None:
    envelope = json.loads((sealed / "seal.json").read_text())
    assert set(envelope) == {"payload", "payloadType", "signatures"} and envelope["payloadType"] == TYPE
    body = json.loads(base64.b64decode(envelope["payload"]))
    Statement.copy_from_pb(json_format.ParseDict(body, statement_pb2.Statement())).validate()
    predicate = body["predicate"]
    assert set(predicate) == {"result", "configuration", "passedTests", "warnedTests", "failedTests"}
    assert predicate["result"] in ("PASSED", "WARNED", "FAILED")
    record = next(d for d in predicate["configuration"] if d["name"] == "seal")["annotations"]
    assert {"at", "expires", "tool", "verdict", "policy_digest", "bar", "required", "digests"} <= set(record)


def test_the_report_names_signer_and_digests(sealed: Path) -> None:
    seal = json.loads((sealed / "report.json").read_text())["seal"]
    envelope = json.loads((sealed / "seal.json").read_text())
    assert seal["signer"] == envelope["signatures"][0]["keyid"]
    assert set(seal["digests"]) == {"audit.json", seal["model"]}
    assert json.loads((sealed / "audit.json").read_text())["seal"] is None


@pytest.mark.parametrize(
    ("file", "phrase"),
    [
        ("report.json", "report.json is not"),
        ("audit.json", "audit.json"),
        ("evidence/00-example_numbers.json", "00-example_numbers.json"),
    ],
)
def test_what_changes_after_the_seal_is_refused(file: str, phrase: str, sealed: Path, keys: Path) -> None:
    path = sealed / file
    path.write_text(path.read_text().replace("1", "2", 1))
    done = verify(sealed, keys / "mine.pub.pem")
    assert done.exit_code == 2 and phrase in done.stderr, done.output


@pytest.mark.parametrize("digest", [{}, {"sha512": "0" * 128}, {"sha256": ""}])
def test_a_file_that_a_seal_names_without_its_sha256_is_refused(
    digest: dict[str, str], sealed: Path, keys: Path
) -> None:
    key = dsse.private_key(keys / "mine.pem")
    envelope = dsse.Envelope.model_validate_json((sealed / "seal.json").read_text())
    statement = json.loads(dsse.open_envelope(envelope, TYPE, key.public_key()))
    assert check_seal(sealed, key.public_key()).subject
    statement["subject"][0]["digest"] = digest
    again = dsse.sign(TYPE, json.dumps(statement).encode(), key)
    (sealed / "seal.json").write_text(again.model_dump_json())
    with pytest.raises(UserError, match="is not the one that was sealed"):
        check_files(sealed, check_seal(sealed, key.public_key()))


def test_another_key_or_a_missing_or_damaged_seal_is_refused(sealed: Path, keys: Path) -> None:
    done = verify(sealed, keys / "other.pub.pem")
    assert done.exit_code == 2 and "not signed by the key that was given" in done.stderr
    done = verify(sealed, keys / "mine.pem")
    assert done.exit_code == 2 and "is no public key" in done.stderr
    (sealed / "seal.json").write_text('{"payload": "!", "payloadType": "application/vnd.in-toto+json"}')
    done = verify(sealed, keys / "mine.pub.pem")
    assert done.exit_code == 2 and "seal.json is damaged" in done.stderr
    (sealed / "seal.json").unlink()
    done = verify(sealed, keys / "mine.pub.pem")
    assert done.exit_code == 2 and "has no seal.json" in done.stderr


def test_a_chain_made_anew_does_not_fit_the_seal(sealed: Path, keys: Path) -> None:
    chain = json.loads((sealed / "chain.json").read_text())
    chain["links"]["score"]["versions"]["python"] = "3.0"
    (sealed / "chain.json").write_text(json.dumps(chain))
    done = verify(sealed, keys / "mine.pub.pem")
    assert done.exit_code == 2 and done.stderr.startswith("error: "), done.output
    assert (
        "digest of its content differs" in done.stderr
        or "not what" in done.stderr
        or "another score" in done.stderr
    )


def test_a_run_that_does_not_verify_is_not_sealed(sealed: Path, keys: Path) -> None:
    (sealed / "audit.json").write_text("{")
    done = RUNNER.invoke(app, ["check", str(sealed), "--sign", str(keys / "mine.pem"), "--trust-plugins"])
    assert done.exit_code == 2 and "audit.json" in done.stderr


def test_a_seal_counts_until_its_day_and_not_before_it_was_made(sealed: Path, keys: Path) -> None:
    key = dsse.public_key(keys / "mine.pub.pem")
    record = check_seal(sealed, key).record
    made, last = datetime.fromisoformat(record.at), datetime.fromisoformat(f"{record.expires}T23:59:59+00:00")
    assert 364 <= (last - made).days <= 366
    assert check_seal(sealed, key, last).record == check_seal(sealed, key, made).record == record
    with pytest.raises(UserError, match=f"expired on {record.expires}"):
        check_seal(sealed, key, last + timedelta(seconds=1))
    with pytest.raises(UserError, match="yet to come"):
        check_seal(sealed, key, made - timedelta(seconds=1))


def test_an_old_seal_is_none_of_another_run(sealed: Path, original: Path, keys: Path, tmp_path: Path) -> None:  # noqa: F811
    shutil.copytree(original, tmp_path / "new")
    config = RunDir.open(tmp_path / "new").load_config(trust_plugins=True)
    execute(RunDir.open(tmp_path / "new"), config, ["score", "report"], lambda *_: None, skip_finished=False)
    shutil.copy(sealed / "seal.json", tmp_path / "new")
    command = ["verify", str(tmp_path / "new"), "--trust-plugins", "--key", str(keys / "mine.pub.pem")]
    done = RUNNER.invoke(app, command)
    assert done.exit_code == 2 and "sealed" in done.stderr, done.output


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("chain.json", lambda c: c["registrations"][0].update(at="2020-01-01T00:00:00+00:00")),
        ("chain.json", lambda c: c["links"]["simulate"]["aside"].update(commit="0" * 40)),
        ("environment.json", lambda e: e["hardware"].update(processor="another")),
        ("phases.json", lambda p: p["attack"].update(started="2020-01-01T00:00:00+00:00")),
    ],
)
def test_registrations_times_commit_and_hardware_are_under_the_seal(
    file: str, change: Callable[[Any], None], sealed: Path, keys: Path
) -> None:
    statement = check_seal(sealed, dsse.public_key(keys / "mine.pub.pem"))
    check_files(sealed, statement)
    content, record = read_chain(sealed).content(), digest_record(sealed)
    value = json.loads((sealed / file).read_text())
    change(value)
    (sealed / file).write_text(json.dumps(value))
    assert read_chain(sealed).content() == content and digest_record(sealed) != record
    with pytest.raises(UserError, match=f"{file} is not the one that was sealed"):
        check_files(sealed, statement)


@pytest.mark.parametrize("name", ["evidence/00-example_numbers.json", "artifacts/manifest.jsonl", "more.txt"])
def test_every_byte_of_the_folder_is_under_the_seal(name: str, sealed: Path, keys: Path) -> None:
    statement = check_seal(sealed, dsse.public_key(keys / "mine.pub.pem"))
    (sealed / name).write_bytes((sealed / name).read_bytes() + b"\n" if (sealed / name).exists() else b"more")
    with pytest.raises(UserError, match=r"digest of its (content|record) differs"):
        check_files(sealed, statement)


def test_a_deployed_file_is_the_audited_model_or_is_refused(sealed: Path, keys: Path, tmp_path: Path) -> None:
    record = read_record(sealed)
    assert record is not None
    deployed, other = tmp_path / "deployed.safetensors", tmp_path / "other.safetensors"
    shutil.copy(sealed / record.model, deployed)
    other.write_bytes(deployed.read_bytes() + b"\0")
    words = ["--seal", str(sealed / "seal.json"), "--key", str(keys / "mine.pub.pem")]
    done = RUNNER.invoke(app, ["verify", str(deployed), *words])
    assert done.exit_code == 3 and "is the model that was audited" in done.stdout, done.output
    assert "seal: WARNED, cannot tell" in done.stdout
    for command, phrase in (
        (["verify", str(other), *words], "is not the model that was audited"),
        (["verify", str(sealed / "audit.json"), *words], "is not the model that was audited"),
        (["verify", str(deployed), *words[:2]], "without the key of its signer"),
        (["verify", str(deployed), *words, "--terms", str(deployed)], "--terms decides about a run folder"),
        (["verify", str(deployed), *words[:3], str(keys / "other.pub.pem")], "not signed by the key"),
        (["verify", str(tmp_path / "none"), *words], "is no file of a model"),
    ):
        done = RUNNER.invoke(app, command)
        assert done.exit_code == 2 and phrase in done.stderr, (command, done.output)


def test_the_reviewers_attestation_is_a_verification_summary_in_dsse(
    sealed: Path, keys: Path, tmp_path: Path
) -> None:
    made, key = tmp_path / "run.vsa.json", keys / "other.pem"
    command = ["verify", str(sealed), "--trust-plugins", "--key", str(keys / "mine.pub.pem")]
    done = RUNNER.invoke(app, [*command, "--sign", str(key)])
    assert done.exit_code == 3 and f"attested: {made}" in done.stdout, done.output
    envelope = dsse.Envelope.model_validate_json(made.read_text())
    body = json.loads(dsse.open_envelope(envelope, TYPE, dsse.public_key(keys / "other.pub.pem")))
    Statement.copy_from_pb(json_format.ParseDict(body, statement_pb2.Statement())).validate()
    assert body["predicateType"] == "https://slsa.dev/verification_summary/v1"
    predicate = body["predicate"]
    # The required fields of https://slsa.dev/spec/v1.0/verification_summary
    required = {"verifier", "timeVerified", "resourceUri", "policy", "verificationResult", "verifiedLevels"}
    assert required <= set(predicate)
    assert predicate["verificationResult"] == "FAILED" and predicate["verifiedLevels"] == ["FAILED"]
    assert predicate["inputAttestations"][0]["digest"]["sha256"] == sha256(sealed / "seal.json")
    digests = {s["name"]: s["digest"]["sha256"] for s in body["subject"]}
    assert digests["audit.json"] == sha256(sealed / "audit.json")
    assert digests["record"] == digest_record(sealed)


def test_a_ready_run_is_attested_as_passed(sealed: Path, keys: Path) -> None:
    result = read_result(sealed)
    assert result.decision is not None
    result.decision.word = Word.READY
    key = dsse.private_key(keys / "mine.pem")
    made = make_summary(key, sealed, result, replayed=True, sealed=False)["predicate"]
    assert made["verificationResult"] == "PASSED" and made["inputAttestations"] == []
    assert made["verifiedLevels"] == ["FEDAUDIT_READY", "FEDAUDIT_REPLAYED"]


def test_a_seal_does_not_outlive_a_phase_that_runs_again(sealed: Path) -> None:
    config = RunDir.open(sealed).load_config(trust_plugins=True)
    execute(RunDir.open(sealed), config, ["report"], lambda *_: None, skip_finished=False)
    assert not (sealed / "seal.json").exists()
