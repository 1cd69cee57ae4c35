"""Plugins are files: `name: fedprox` is fl/methods/fedprox.py, `name: mine.prox:Prox` is a user's own.

There is no registry to edit. A plugin class carries a `card` that says what it is, and a nested
frozen dataclass `Config` whose fields are its only settings.
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import checked, plain

T = TypeVar("T")


class Plugin:
    """What every method, attack, protection, partition, ... shares: a Config and a constructor."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config:
        """No settings."""

    config: Any  # an instance of the class's own Config

    def __init__(self, config: Any = None) -> None:
        """Raises UserError for settings out of their bounds, as configure() does."""
        self.config = self.Config() if config is None else config
        if dataclasses.is_dataclass(self.config):
            checked(type(self.config), plain(self.config), type(self).__module__.rpartition(".")[2])


def names(*packages: str) -> list[str]:
    """Names of the plugins in some packages, from their file names."""
    return sorted(_homes(packages))


def _homes(packages: Sequence[str]) -> dict[str, str]:
    """Plugin name -> package; raises UserError where two folders have a file of one name."""
    homes: dict[str, str] = {}
    for package in packages:
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if found.name.startswith("_"):
                continue
            if found.name in homes:
                one, two = (f"{folder_of(p)}{found.name}.py" for p in (homes[found.name], package))
                raise UserError(
                    f"two plugins are called {found.name!r}: {one} and {two}", hint="rename one of them"
                )
            homes[found.name] = package
    return homes


def folder_of(package: str) -> str:
    """A package of ours as a folder of the repository: "fl/methods/"."""
    return package.removeprefix("fedaudit.").replace(".", "/") + "/"


def home(packages: Sequence[str], name: str, where: str = "") -> str:
    """The package whose file `name` is; raises UserError where there is none, naming the nearest known name.

    `where` is the key in the config that errors name.
    """
    homes = _homes(packages)
    if name not in homes:
        near = difflib.get_close_matches(name, homes, n=1)
        folders = " or ".join(map(folder_of, packages))
        hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(sorted(homes))
        raise UserError(f"{where}: no {name!r} in {folders}".removeprefix(": "), hint=hint, key=where)
    return homes[name]


def load(packages: str | Sequence[str], name: str, base: type[T], where: str = "") -> type[T]:
    """The plugin class called `name`: a file of one of the packages, or "module:Class".

    Raises UserError where there is none, naming the key `where`.
    """
    if ":" in name:
        return _load_foreign(name, base, where)
    package = home([packages] if isinstance(packages, str) else packages, name, where)
    module = importlib.import_module(f"{package}.{name}")
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


def _load_foreign(name: str, base: type[T], where: str) -> type[T]:
    cls = foreign.find(name, where)
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise UserError(
            f"{where}: {name!r} is not a {base.__name__}".removeprefix(": "),
            hint=f"derive it from {base.__module__}:{base.__name__}",
            key=where,
        )
    return cls


def configure(cls: type[Any], settings: Mapping[str, Any], where: str) -> Any:
    """An instance of `cls` with settings checked against its Config and converted by declared type.

    `where` is the path in the config file ("attacks[2]") that errors name.
    """
    return cls(checked(cls.Config, settings, where))
