"""A config with every default written out, as the run folder keeps it, and its JSON Schema."""

import re
from functools import reduce
from typing import Any, cast

import yaml

from audit.settings import catalog
from audit.settings.config import Config, plugins
from audit.settings.errors import located


def resolve(config: Config) -> dict[str, Any]:
    """Every key with its value, plugin settings included, as plain values; imports the plugins.

    Raises UserError where a setting is unknown or out of range. resolve(load(dump(x))) == x.
    """
    out: dict[str, Any] = catalog.plain(config.model_dump())
    for kind, where, spec in plugins(config):
        with located(config.file):
            settings = catalog.settings(kind, spec.name, spec.settings, where)
        if kind in ("sections", "renderers") or where.endswith("].method"):
            continue  # plain lists; a variant keeps what it changes
        full = {k: v for k, v in spec.model_dump().items() if k not in spec.settings} | settings
        *path, last = [int(k) if k.isdigit() else k for k in re.findall(r"\w+", where)]
        reduce(lambda at, key: at[key], path, cast(Any, out))[last] = full
    return out


def dump(resolved: dict[str, Any]) -> str:
    """As YAML that load() reads back to the same values."""
    return yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=100)


def config_schema() -> dict[str, Any]:
    """JSON Schema for editors: keys, types, ranges, and the names of the plugins that exist."""
    schema = Config.model_json_schema()
    top, federation = schema["properties"], schema["$defs"]["Federation"]["properties"]
    top["method"] |= _plugin_schema("methods")
    top["aggregator"] |= _plugin_schema("aggregators")
    for key, kind in (
        ("dataset", "datasets"),
        ("partition", "partitions"),
        ("availability", "availability"),
        ("model", "models"),
    ):
        federation[key] |= _plugin_schema(kind)
    for kind in ("protections", "attacks", "accountants"):
        top[kind]["items"] = _plugin_schema(kind)
    schema["$defs"]["Variant"]["properties"]["protections"]["items"] = _plugin_schema("protections")
    schema["$defs"].pop("PluginSpec", None)
    for properties in (top, federation):
        for field in properties.values():
            if "anyOf" in field:
                field.pop("$ref", None)
    return schema


def _plugin_schema(kind: str) -> dict[str, Any]:
    name = {"anyOf": [{"enum": catalog.names(kind)}, {"type": "string", "pattern": ":"}]}
    settings = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    return {"anyOf": [*name["anyOf"], settings]}
