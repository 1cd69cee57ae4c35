"""Every export is valid against its published schema, by a validator that is not ours.

CycloneDX's comes with its Python library; the other two lie in tests/schemas/, as packages of PyPI publish them.
"""

import hashlib
import json
from functools import cache
from typing import Any

import jsonschema
import pytest
import xmlschema
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.schema import result_schema
from fedaudit.reports.document import Document, compose
from fedaudit.reports.record import SealRecord
from fedaudit.reports.result import AuditResult, GateRecord, Outcome, Severity
from tests.reports.sample import result
from tests.test_house import ROOT

FOLDER = ROOT / "tests" / "schemas"
# file: who publishes it, the source distribution on PyPI that it was taken from, and its SHA-256
PUBLISHED = {
    "sarif-2.1.0.json": (
        "OASIS sarif-spec, from sarif-pydantic 0.6.2",
        "6352a05f9d03f181b8d9c71a46bdacc4fcff9d8ade5364858b425ba0c0994ed7",
    ),
    "junit-10.xsd": (
        "Jenkins xunit-plugin (MIT), from testing/example_scripts of pytest 8.3.3",
        "a1a816f58d1bf95ebabf371994df0b9246dee66ea9572fbec4f9296f1b2c0ff6",
    ),
}
SEAL = SealRecord(
    signer="ab" * 32,
    at="2026-01-01T00:00:00+00:00",
    root="cd" * 32,
    digests={"audit.json": "01" * 32, "artifacts/x.safetensors": "23" * 32},
    model="artifacts/x.safetensors",
)


def document(kind: str) -> Document:
    """The sample as it is, gated, sealed, or without any finding."""
    found = result()
    if kind == "gated":
        ids = [f.id for f in found.findings if f.outcome is Outcome.DEMONSTRATED]
        found.gate = GateRecord(
            outcome="findings",
            sentence="x",
            fail_on=Severity.LOW,
            failing=ids[:-1],
            waived={ids[-1]: "until then"},
        )
    if kind == "sealed":
        found.seal = SEAL
    if kind == "empty":
        found = found.model_copy(update={"findings": [], "galleries": [], "figures": []})
    return compose(found, [catalog.load("sections", "limits")])


def rendered(renderer: str, kind: str) -> bytes:
    out: bytes = catalog.load("renderers", renderer)().render(document(kind))
    return out


KINDS = ("plain", "gated", "sealed", "empty")


def published(name: str) -> bytes:
    """A schema as its source published it."""
    source, digest = PUBLISHED[name]
    found = (FOLDER / name).read_bytes()
    assert hashlib.sha256(found).hexdigest() == digest, f"tests/schemas/{name} is not the file of {source}"
    return found


@cache
def sarif() -> Any:
    schema = json.loads(published("sarif-2.1.0.json"))
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())


@cache
def junit() -> Any:
    return xmlschema.XMLSchema(published("junit-10.xsd").decode())


def cyclonedx(bom: Any) -> str:
    """What is wrong with a bill of materials by CycloneDX 1.6, strictly read; empty where nothing is."""
    flaw = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))
    return "" if flaw is None else str(flaw.data.message)


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_is_valid(kind: str) -> None:
    sarif().validate(json.loads(rendered("sarif", kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_junit_is_valid(kind: str) -> None:
    junit().validate(rendered("junit", kind).decode())


@pytest.mark.parametrize("kind", KINDS)
def test_cyclonedx_is_valid_and_has_a_card_and_declarations(kind: str) -> None:
    bom = json.loads(rendered("cyclonedx", kind))
    assert cyclonedx(bom) == ""
    model = bom["metadata"]["component"]
    assert (
        model["type"] == "machine-learning-model" and model["modelCard"] and bom["declarations"]["attestations"]
    )
    assert ("hashes" in model) == (kind == "sealed")


@pytest.mark.parametrize("kind", KINDS)
def test_audit_json_is_valid_against_our_own(kind: str) -> None:
    found = document(kind).result
    jsonschema.Draft202012Validator(result_schema(AuditResult)).validate(json.loads(found.model_dump_json()))


def test_the_validators_refuse() -> None:
    bom = json.loads(rendered("cyclonedx", "plain"))
    bom["metadata"]["component"]["modelCard"]["colour"] = "red"
    assert "colour" in cyclonedx(bom)


def test_the_validator_of_sarif_refuses() -> None:
    log = json.loads(rendered("sarif", "plain"))
    log["runs"][0]["results"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        sarif().validate(log)
    del log["runs"][0]["results"][0]["colour"]
    log["runs"][0]["results"][0]["level"] = "severe"
    with pytest.raises(jsonschema.ValidationError, match="severe"):
        sarif().validate(log)


def test_the_validator_of_junit_refuses() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        junit().validate("<testsuites><testcase/></testsuites>")
