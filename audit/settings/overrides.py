"""Overrides: a config with some keys changed, as variants, published tables and sweeps write it.

    {"federation.partition.alpha": 0.1, "method": {"lr": 0.02}, "protections": []}

A key is written whole or nested, both mean the same. Groups are laid over groups; lists and values
replace; a plugin of another name brings none of the old one's settings.
"""

from collections.abc import Mapping
from typing import Any

from audit.settings.config import Config, at
from audit.settings.errors import located, validate
from audit.settings.resolve import resolve


def overridden(base: Config | Mapping[str, Any], *layers: Mapping[str, Any], where: str) -> Config:
    """`base` with each layer of overrides laid over what is below it.

    Everything is checked, settings of plugins included: raises UserError that begins with `where`.
    """
    below = base.model_dump() if isinstance(base, Config) else base
    config = validate(Config, merged(below, *layers), where)
    with located(where):
        resolve(config)
    return at(base.file, config) if isinstance(base, Config) else config


def merged(below: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
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
