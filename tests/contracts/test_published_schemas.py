"""Every export is valid against its published schema, by a validator that is not ours.

`make dev` takes the schemas from source distributions, named in release/schemas.txt, and puts them into the
environment. The validators are imported where they are used: every process of the suite collects this file, and
they take two seconds.
"""

import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.schema import result_schema
from fedaudit.reports.document import Document, compose
from fedaudit.reports.record import SealRecord
from fedaudit.reports.result import AuditResult
from tests.reports.sample import result

FOLDER = Path(sys.prefix) / "share" / "fedaudit" / "schemas"
# SHA-256 of each schema
PUBLISHED = {
    "sarif-schema-2.1.0.json": "6352a05f9d03f181b8d9c71a46bdacc4fcff9d8ade5364858b425ba0c0994ed7",
    "junit-10.xsd": "a1a816f58d1bf95ebabf371994df0b9246dee66ea9572fbec4f9296f1b2c0ff6",
}
SEAL = SealRecord(
    signer="ab" * 32,
    at="2026-01-01T00:00:00+00:00",
    expires="2027-01-01",
    tool="fedaudit 0.1.0",
    verdict="not_ready",
    policy="default, version 13",
    policy_digest="ef" * 32,
    bar="high",
    required=["none"],
    accepted={},
    content="cd" * 32,
    digests={"audit.json": "01" * 32, "artifacts/x.safetensors": "23" * 32},
    model="artifacts/x.safetensors",
)


def document(kind: str) -> Document:
    """The sample as it is, gated, sealed, or without any finding."""
    found = result()
    if kind == "gated":
        ids = [f.id for f in found.findings if f.is_demonstrated]
        assert found.decision is not None
        found.decision.failing, found.decision.accepted = ids[:-1], {ids[-1]: "until then"}
    if kind == "sealed":
        found.seal = SEAL
    if kind == "empty":
        found = found.model_copy(update={"findings": [], "galleries": [], "figures": []})
    return compose(found, [catalog.load("sections", "limits")])


def rendered(renderer: str, kind: str) -> bytes:
    out: bytes = catalog.load("renderers", renderer)().render(document(kind))
    return out


KINDS = ("plain", "gated", "sealed", "empty")


def published(name: str, folder: Path = FOLDER) -> bytes:
    """Return a schema as its authors published it."""
    path = folder / name
    if not path.is_file():
        pytest.fail(f"{path} is missing: `make dev` puts it there", pytrace=False)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert digest == PUBLISHED[name], f"{path} is not the published file: `make clean dev` fetches it again"
    return content


@cache
def sarif() -> Any:
    import jsonschema

    schema = json.loads(published("sarif-schema-2.1.0.json"))
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


@cache
def junit() -> Any:
    import xmlschema

    return xmlschema.XMLSchema(published("junit-10.xsd").decode())


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_is_valid(kind: str) -> None:
    sarif().validate(json.loads(rendered("sarif", kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_junit_is_valid(kind: str) -> None:
    junit().validate(rendered("junit", kind).decode())


@pytest.mark.parametrize("kind", KINDS)
def test_audit_json_is_valid_against_our_own(kind: str) -> None:
    import jsonschema

    found = document(kind).result
    jsonschema.Draft202012Validator(result_schema(AuditResult)).validate(json.loads(found.model_dump_json()))


def test_a_schema_that_is_missing_or_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"junit-10\.xsd is missing: `make dev` puts it there"):
        published("junit-10.xsd", tmp_path)
    (tmp_path / "junit-10.xsd").write_text("<schema/>")
    with pytest.raises(AssertionError, match="is not the published file"):
        published("junit-10.xsd", tmp_path)


def test_the_validator_of_sarif_refuses() -> None:
    import jsonschema

    log = json.loads(rendered("sarif", "plain"))
    log["runs"][0]["results"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        sarif().validate(log)
    del log["runs"][0]["results"][0]["colour"]
    log["runs"][0]["results"][0]["level"] = "severe"
    with pytest.raises(jsonschema.ValidationError, match="severe"):
        sarif().validate(log)


def test_the_validator_of_junit_refuses() -> None:
    import xmlschema

    with pytest.raises(xmlschema.XMLSchemaValidationError):
        junit().validate("<testsuites><testcase/></testsuites>")
