"""The JSON Schemas, held by a real validator: what they accept is what the tool accepts and writes."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.schema import DIALECT, PLACES, config_schema
from fedaudit.fl.runtime.yaml import read_yaml
from tests.audit.tiny import TEXT

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


@cache
def schema(name: str) -> dict[str, Any]:
    """As the command prints it: strict JSON."""
    done = CliRunner().invoke(app, ["show", "--schema", name])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    return found


def errors(name: str, value: Any) -> list[str]:
    return [f"{e.json_path}: {e.message}"[:200] for e in Draft202012Validator(schema(name)).iter_errors(value)]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["config", "result"])
def test_a_schema_is_valid_and_says_which_dialect_and_what_it_is(name: str) -> None:
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == DIALECT and found["$id"] == f"urn:fedaudit:{name}:1"
    text = json.dumps(found)
    references = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert references <= set(found["$defs"]) and "PluginSpec" not in text and "AttackSpec" not in text


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_config_that_ships_is_accepted(path: Path) -> None:
    assert errors("config", read_yaml(path)) == []


def test_every_setting_of_every_plugin_has_words_and_a_default() -> None:
    definitions, seen = schema("config")["$defs"], 0
    for kind in set(PLACES.values()) & set(definitions):
        for name in catalog.names(kind):
            known = definitions[f"{kind}.{name}"]
            declared = dataclasses.fields(getattr(catalog.load(kind, name), "Config", object)) or ()
            for field in declared:
                found = known["properties"][field.name]
                assert found.get("description"), f"{kind} {name}: {field.name} has no description"
                has_none = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                said = "default" in found or "(default: .inf)" in found["description"]
                assert said or (has_none and field.name in known["required"]), f"{kind} {name}: {field.name}"
                seen += 1
    assert seen > 400


def test_every_key_of_a_config_has_words() -> None:
    found = schema("config")
    groups = [d for name, d in found["$defs"].items() if name[0].isupper()]
    bare = [(g["title"], k) for g in groups for k, v in g["properties"].items() if not v.get("description")]
    assert len(groups) >= 7 and not bare


MU = {"name": "fedprox", "mu": 0.5}


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({"method": "rebafl"}, True),
        ({"method": MU}, True),
        ({"method": MU | {"mu": -1}}, False),
        ({"method": MU | {"mu": "much"}}, False),
        ({"method": MU | {"muu": 1}}, False),
        ({"method": {"mu": 1}}, False),
        ({"method": "fedprxo"}, False),
        ({"method": {"name": "fedprxo"}}, False),
        ({"method": "mine:Own"}, True),
        ({"method": {"name": "mine.own:Own", "anything": [1]}}, True),
        ({"record": "every 10"}, True),
        ({"record": "every 0"}, False),
        ({"record": [0, 3]}, True),
        ({"record": 3}, False),
        ({"record": "model"}, True),
        ({"record": {"rounds": "all"}}, False),
        ({"workers": "auto"}, True),
        ({"workers": 1025}, False),
        ({"attacks": ["rigde"]}, False),
        ({"attacks": "auto"}, True),
        ({"attacks": "all"}, False),
        ({"attacks": None}, False),
        ({"attacks": [{"name": "count_recovery", "id": "one"}, "count_recovery"]}, True),
        ({"attacks": [{"name": "count_recovery", "id": "One/.."}]}, False),
        ({"protections": [{"name": "secure_aggregation", "id": "one"}]}, False),
        ({"report": ["json", "mine:Word"]}, True),
        ({"report": ["docx"]}, False),
        ({"show": "full"}, True),
        ({"federation": {"dataset": "digits", "limit": [None, 20]}}, True),
        ({"federation": {"dataset": "digits", "limit": [20]}}, False),
        ({"matrix": {"availabilities": [{"name": "leaving", "label": 9, "leave": 8, "back": 15}]}}, True),
        ({"variants": [{"name": "a", "protections": ["secure_aggregation"], "method": {"lr": 0.1}}]}, True),
        ({"variants": [{"name": "a", "protections": ["insecure_aggregation"]}]}, False),
        ({"sead": 1}, False),
    ],
)
def test_the_schema_refuses_what_the_tool_refuses(change: dict[str, Any], right: bool) -> None:
    plain = {"federation": {"dataset": "digits"}, "method": "fedavg"}
    found = errors("config", plain | change)
    assert (found == []) == right, found


def test_an_editor_is_told_the_settings_by_the_name() -> None:
    cases = config_schema()["$defs"]["methods"]["anyOf"][-1]["allOf"]
    [case] = [c for c in cases if c["if"]["properties"]["name"]["const"] == "rebafl"]
    assert case["then"] == {"$ref": "#/$defs/methods.rebafl"}
    assert {"name", "epsilon", "mu", "rounds"} <= set(config_schema()["$defs"]["methods.rebafl"]["properties"])


def test_a_result_with_an_infinite_epsilon_meets_its_schema(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT + "workers: 0\nattacks: []\nreport: [json]\nnoise_audit: false\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 3, done.output  # no attack ran
    text = (tmp_path / "out" / "audit.json").read_text()
    assert '"Infinity"' in text
    assert errors("result", json.loads(text)) == []
    assert errors("config", yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())) == []
    damaged = json.loads(text)
    damaged["bounds"][0]["epsilon"] = "infinite"
    assert errors("result", damaged)
