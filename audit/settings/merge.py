"""Plain settings laid over others, key by key; what the rules are, audit/settings/overrides.py says."""

from collections.abc import Mapping
from typing import Any


def merge(below: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The layers over `below`, key by key, unchecked."""
    out = dict(below)
    for layer in layers:
        out = _over(out, layer)
    return out


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for path, given in above.items():
        key, *rest = str(path).split(".")
        value = given
        for part in reversed(rest):
            value = {part: value}
        old = out.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}  # a plugin written as its name alone
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            other = "name" in old and value.get("name", old["name"]) != old["name"]
            out[key] = _over({}, value) if other else _over(old, value)
        else:
            out[key] = _over({}, value) if isinstance(value, Mapping) else value
    return out
