"""The plugin that an entry of a config names."""

from typing import Any

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.runtime.plugin import configure


def build_plugin(kind: str, spec: PluginSpec, where: str) -> Any:
    """The configured plugin that one entry of the config names; `kind` is a shelf of the catalogue."""
    return configure(catalog.load(kind, spec.name), spec.settings, where)
