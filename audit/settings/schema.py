"""JSON Schemas (2020-12): of a config, with every setting of every plugin, and of audit.json.

An editor that knows the config's schema completes `method: {name: rebafl, ...}`: a plugin's settings follow from
its name. Code of a user's own, module:Class, may have any settings.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import RecordedConfig, SimulatedConfig
from fedaudit.fl.runtime.settings import adapter

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
PLACES = {  # key of a config -> the kind of plugin it names
    "dataset": "datasets",
    "partition": "partitions",
    "availability": "availability",
    "selection": "selections",
    "model": "models",
    "time_model": "devices",
    "method": "methods",
    "aggregator": "aggregators",
    "adversary": "adversaries",
    "adversaries": "adversaries",  # of a matrix, as the six that follow
    "aggregators": "aggregators",
    "partitions": "partitions",
    "availabilities": "availability",
    "methods": "methods",
    "protections": "protections",
    "attacks": "attacks",
    "checks": "checks",
    "accountants": "accountants",
}
BY_ID = "protections-by-id"  # of a matrix, where one may stand more than once
FOREIGN = {"type": "string", "pattern": ":", "description": "module:Class, of your own"}


def config_schema() -> Schema:
    """Of a config, as YAML is written: every key with its words, default and bounds."""
    schema: Schema = TypeAdapter(SimulatedConfig | RecordedConfig).json_schema()
    definitions = schema["$defs"]
    specs = {name: definitions.pop(name) for name in ("PluginSpec", "AttackSpec") if name in definitions}
    used = dict.fromkeys(_name_plugins(schema))
    for kind in used:
        definitions[kind] = _plugins(kind, definitions, specs.get("AttackSpec", {}).get("properties", {}))
    for case in (SimulatedConfig, RecordedConfig):
        _write_as_yaml(definitions[case.__name__]["properties"])
    recorded = {"required": ["subject"]}
    first, second = schema.pop("anyOf")
    schema |= {"type": "object", "if": recorded, "then": second, "else": first}  # errors are then of one of them
    return _finish(schema, "config")


def _write_as_yaml(keys: Schema) -> None:
    """Keys of a config in the forms that YAML may have besides those of Python."""
    for key in ("attacks", "variants"):
        keys[key]["anyOf"] = [{"const": "auto"} if b == {"type": "null"} else b for b in keys[key]["anyOf"]]
    keys["attacks"]["default"] = "auto"
    keys["report"]["items"] = {"anyOf": [{"enum": catalog.names("renderers")}, FOREIGN]}


def result_schema(result: type[BaseModel]) -> Schema:
    """Of audit.json as it is written: JSON has no infinity, so "Infinity" stands there as text."""
    schema = result.model_json_schema(mode="serialization")
    for node in list(_nodes(schema)):
        if node.get("type") == "number":
            bounds = {k: node.pop(k) for k in list(node) if k not in ("title", "description", "default")}
            node["anyOf"] = [bounds, {"enum": ["Infinity", "-Infinity", "NaN"]}]
    return _finish(schema, "result")


def claims_schema(claims: type[BaseModel]) -> Schema:
    """Of a file of claims, as YAML is written."""
    return _finish(claims.model_json_schema(), "claims")


def _name_plugins(schema: Schema) -> Iterator[str]:
    """Put a reference to its kind wherever a plugin may stand; yields the kinds that are named."""
    for node in _nodes(schema):
        for key, value in node.get("properties", {}).items():
            for inner in _nodes(value):
                if inner.get("$ref") in ("#/$defs/PluginSpec", "#/$defs/AttackSpec"):
                    by_id = key == "protections" and inner["$ref"].endswith("AttackSpec")
                    kind = BY_ID if by_id else PLACES[key]
                    inner["$ref"] = f"#/$defs/{kind}"
                    yield kind


def _plugins(kind: str, definitions: Schema, attack: Schema) -> Schema:
    """A plugin of a kind: its name, or a group of keys with the settings that the name decides."""
    shelf = "protections" if kind == BY_ID else kind
    name = {"anyOf": [{"enum": catalog.names(shelf)}, FOREIGN]}
    listed = kind in (
        "attacks",
        "adversaries",
        "aggregators",
        "partitions",
        "availability",
        "methods",
        BY_ID,
    )  # somewhere
    own = {"name": name} | ({"id": attack["id"]} if listed else {})
    cases = []
    for each in catalog.names(shelf):
        definitions[f"{kind}.{each}"] = _settings(shelf, each, own, definitions)
        chosen = {"properties": {"name": {"const": each}}, "required": ["name"]}
        cases.append({"if": chosen, "then": {"$ref": f"#/$defs/{kind}.{each}"}})
    group = {"type": "object", "properties": own, "required": ["name"], "allOf": cases}
    return {"anyOf": [*name["anyOf"], group]}


def _settings(kind: str, name: str, own: Schema, definitions: Schema) -> Schema:
    """The settings of one plugin, with its name."""
    cls = catalog.load(kind, name)
    found: Schema = {"properties": {}}
    if declared := getattr(cls, "Config", None):
        found = adapter(declared).json_schema(ref_template=f"#/$defs/{kind}.{name}.{{model}}")
        for inner, schema in found.pop("$defs", {}).items():
            definitions[f"{kind}.{name}.{inner}"] = schema
        for field in dataclasses.fields(declared):
            if field.default_factory is not dataclasses.MISSING:  # pydantic writes plain defaults only
                found["properties"][field.name]["default"] = catalog.plain(field.default_factory())
    properties = {"name": {"const": name}} | {k: v for k, v in own.items() if k != "name"}
    words = catalog.entry(kind, name)
    return {
        "title": words.title,
        "description": words.text,
        "type": "object",
        "properties": properties | found["properties"],
        "required": ["name", *found.get("required", [])],
        "additionalProperties": False,
    }


def _finish(schema: Schema, what: str) -> Schema:
    """With its dialect and identity; a default that JSON cannot write is said in words."""
    for node in list(_nodes(schema)):
        if isinstance(node.get("default"), float) and not math.isfinite(node["default"]):
            default = node.pop("default")
            words = ".inf" if default > 0 else "-.inf"
            node["description"] = f"{node.get('description', '')} (default: {words})".strip()
    return {"$schema": DIALECT, "$id": f"urn:fedaudit:{what}:1"} | schema


def _nodes(value: Any) -> Iterator[Schema]:
    """Every mapping in a schema."""
    if isinstance(value, dict):
        yield value
        for inner in list(value.values()):
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)
