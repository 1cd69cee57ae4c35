"""Plugins are files: `name: fedprox` is fl/methods/fedprox.py, `name: mine.prox:Prox` is a user's own.

There is no registry to edit. A plugin class carries a `card` that says what it is, and a nested
frozen dataclass `Config` whose fields are its only settings.
"""

import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fl.errors import UserError

T = TypeVar("T")


class Plugin:
    """What every method, attack, protection, partition, ... shares: a Config and a constructor."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        """No settings."""

    config: Any  # an instance of the class's own Config

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config


def names(*packages: str) -> list[str]:
    """Names of the plugins in some packages, from their file names."""
    return sorted(_homes(packages))


def _homes(packages: Sequence[str]) -> dict[str, str]:
    """Plugin name -> package."""
    return {
        m.name: package
        for package in packages
        for m in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not m.name.startswith("_")
    }


def load(packages: str | Sequence[str], name: str, base: type[T]) -> type[T]:
    """The plugin class called `name`: a file of one of the packages, or "module:Class".

    Raises UserError where there is none, naming the nearest known name.
    """
    if ":" in name:
        return _load_dotted(name, base)
    packages = [packages] if isinstance(packages, str) else list(packages)
    homes = _homes(packages)
    if name not in homes:
        near = difflib.get_close_matches(name, homes, n=1)
        where = " or ".join(p.replace(".", "/") + "/" for p in packages)
        hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(sorted(homes))
        raise UserError(f"no {name!r} in {where}", hint=hint)
    module = importlib.import_module(f"{homes[name]}.{name}")
    found = [
        c
        for _, c in inspect.getmembers(module, inspect.isclass)
        if issubclass(c, base)
        and c is not base
        and c.__module__ == module.__name__
        and not c.__name__.startswith("_")
    ]
    # file = class in lower case; helper classes of the same base may stand beside it
    exact = [c for c in found if c.__name__.lower() == name.replace("_", "")]
    if len(exact or found) != 1:
        raise UserError(
            f"{module.__name__} must define one {base.__name__}, found {len(found)}",
            hint="name the class as the file, in CamelCase",
        )
    return (exact or found)[0]


def _load_dotted(name: str, base: type[T]) -> type[T]:
    module_name, _, class_name = name.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"cannot load {name!r}: {error}",
            hint="write module:Class; the module is installed or beside the config",
        ) from error
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise UserError(
            f"{name!r} is not a {base.__name__}", hint=f"derive it from {base.__module__}:{base.__name__}"
        )
    return cls


def configure(cls: type[Any], settings: Mapping[str, Any], where: str) -> Any:
    """An instance of `cls` with settings checked against its Config and converted by declared type.

    `where` is the path in the config file ("attacks[2]") that errors name.
    """
    from pydantic import TypeAdapter, ValidationError

    known = [f.name for f in dataclasses.fields(cls.Config)]
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "known: " + (", ".join(known) or "no settings")
            raise UserError(f"{where}: unknown key {key!r}", hint=hint)
    hints = typing.get_type_hints(cls.Config)
    for key, value in settings.items():
        if isinstance(value, bool) and hints[key] in (int, float):  # pydantic reads true as 1
            raise UserError(
                f"{where}.{key} must be a number, got {value}",
                hint="`fedaudit show` prints every key with its default",
            )
    try:
        config = TypeAdapter(cls.Config).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(p) for p in first["loc"])
        raise UserError(
            f"{where}.{key}: {first['msg']}, got {first['input']!r}",
            hint="`fedaudit show` prints every key with its type and default",
        ) from error
    return cls(config)
