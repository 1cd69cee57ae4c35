"""A config with every default written out, as the run folder keeps it."""

import re
from functools import reduce
from typing import Any, cast

import yaml

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config, plugins
from fedaudit.audit.settings.errors import located


def resolve(config: Config) -> dict[str, Any]:
    """Every key with its value, plugin settings included, as plain values; imports the plugins.

    Raises UserError where a setting is unknown or out of range. resolve(load(dump(x))) == x.
    """
    out: dict[str, Any] = catalog.plain(config.model_dump())
    for kind, where, spec in plugins(config):
        with located(config.file):
            settings = catalog.settings(kind, spec.name, spec.settings, where)
        if (
            kind in ("sections", "renderers")
            or where.endswith("].method")
            or where.startswith(("matrix.", "absence."))
        ):
            continue  # plain lists; variants and cells keep what they change
        full = {k: v for k, v in spec.model_dump().items() if k not in spec.settings} | settings
        *path, last = [int(k) if k.isdigit() else k for k in re.findall(r"\w+", where)]
        reduce(lambda at, key: at[key], path, cast(Any, out))[last] = full
    return out


def dump(resolved: dict[str, Any]) -> str:
    """As YAML that load() reads back to the same values."""
    return yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=100)
