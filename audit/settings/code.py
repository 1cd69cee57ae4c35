"""Code that a config names: all of it, found wherever it stands, and loaded when it is trusted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.fl.runtime import foreign

WORDS = ("title", "system", "policy", "claims")  # keys whose text names no code, whatever it looks like


def named_code(config: Config) -> list[tuple[str, str]]:
    """Everything in a config that names code outside this package, as (key, "module:Class").

    Looks at every value, wherever it stands: a place that takes plugins is then covered before anybody lists it.
    """
    found = []
    stack: list[tuple[str, Any]] = [(k, v) for k, v in config.model_dump().items() if k not in WORDS]
    while stack:
        key, value = stack.pop(0)
        if isinstance(value, str) and foreign.NAME.fullmatch(value):
            found.append((key, value))
        elif isinstance(value, Mapping):
            stack += [(f"{key}.{k}", v) for k, v in value.items()]
        elif isinstance(value, list | tuple):
            stack += [(f"{key}[{i}]", v) for i, v in enumerate(value)]
    return found


def bring_code(config: Config, folders: Sequence[Path]) -> None:
    """Load the code that a trusted config names and that is not installed, from these folders."""
    with locate_errors(config.file):
        for key, name in named_code(config):
            foreign.bring(name, folders, key.removesuffix(".name"))
