"""Overrides: a config with some keys changed, as variants, published tables and sweeps write it.

    {"federation.partition.alpha": 0.1, "method": {"lr": 0.02}, "protections": []}

A key is written whole or nested, both mean the same. Groups are laid over groups; lists and values
replace; a plugin of another name brings none of the old one's settings.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, overload

from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import locate_errors, validate
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.resolve import resolve

C = TypeVar("C", bound=Config)


@overload
def overridden(base: C, *layers: Mapping[str, Any], where: str) -> C: ...
@overload
def overridden(base: Mapping[str, Any], *layers: Mapping[str, Any], where: str) -> Config: ...
def overridden(base: Config | Mapping[str, Any], *layers: Mapping[str, Any], where: str) -> Config:
    """`base` with each layer of overrides laid over what is below it.

    Everything is checked, settings of plugins included: raises UserError that begins with `where`.
    """
    below = base.model_dump() if isinstance(base, Config) else base
    config = validate(Config, merge(below, *layers), where)
    with locate_errors(where):
        resolve(config)
    return config.set_origin(base.origin) if isinstance(base, Config) else config
