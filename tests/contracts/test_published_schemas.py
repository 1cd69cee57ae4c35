"""Every export is valid against its published schema, by a validator that is not ours.

The schemas lie in tests/schemas/, byte for byte as at their source; SOURCES.txt has address and SHA-256.
"""

import hashlib
import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
import referencing
import xmlschema
from referencing.jsonschema import DRAFT7

from audit.settings import catalog
from audit.settings.schema import result_schema
from reports.document import Document, compose
from reports.record import SealRecord
from reports.result import AuditResult, GateRecord, Outcome, Severity
from tests.reports.sample import result
from tests.test_house import ROOT

FOLDER = ROOT / "tests" / "schemas"
SEAL = SealRecord(
    signer="ab" * 32,
    at="2026-01-01T00:00:00+00:00",
    root="cd" * 32,
    digests={"audit.json": "01" * 32, "artifacts/x.safetensors": "23" * 32},
    model="artifacts/x.safetensors",
)


def test_every_schema_is_what_its_source_published() -> None:
    found = re.findall(r"^(\S+)\n  (https://\S+)\n  sha256 (\w{64})", (FOLDER / "SOURCES.txt").read_text(), re.M)
    assert {name for name, _, _ in found} == {p.name for p in FOLDER.iterdir()} - {"SOURCES.txt"}
    for name, address, digest in found:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name
        assert re.search("/blob/[0-9a-f]{40}/", address)


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


def schema(name: str) -> Any:
    return json.loads((FOLDER / name).read_bytes())


@cache
def sarif() -> Any:
    return jsonschema.Draft4Validator(schema("sarif-2.1.0.json"), format_checker=jsonschema.FormatChecker())


@cache
def cyclonedx() -> Any:
    names = ("bom-1.6.schema.json", "jsf-0.82.schema.json", "spdx.schema.json")
    parts = {n: schema(n) for n in names}
    resources = [
        (p["$id"], referencing.Resource.from_contents(p, default_specification=DRAFT7)) for p in parts.values()
    ]
    registry: Any = referencing.Registry().with_resources(resources)
    return jsonschema.Draft7Validator(
        parts[names[0]], registry=registry, format_checker=jsonschema.FormatChecker()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_is_valid(kind: str) -> None:
    sarif().validate(json.loads(rendered("sarif", kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_junit_is_valid(kind: str) -> None:
    xmlschema.XMLSchema(FOLDER / "junit-10.xsd").validate(rendered("junit", kind).decode())


@pytest.mark.parametrize("kind", KINDS)
def test_cyclonedx_is_valid_and_has_a_card_and_declarations(kind: str) -> None:
    bom = json.loads(rendered("cyclonedx", kind))
    cyclonedx().validate(bom)
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
    log = json.loads(rendered("sarif", "plain"))
    log["runs"][0]["results"][0]["level"] = "severe"
    with pytest.raises(jsonschema.ValidationError):
        sarif().validate(log)
    bom = json.loads(rendered("cyclonedx", "plain"))
    bom["metadata"]["component"]["modelCard"]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        cyclonedx().validate(bom)
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        xmlschema.XMLSchema(FOLDER / "junit-10.xsd").validate("<testsuites><testcase/></testsuites>")
