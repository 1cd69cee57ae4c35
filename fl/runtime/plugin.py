"""Plugins are files: `name: fedprox` is fl/methods/fedprox.py, `name: mine.prox:Prox` is a user's own.

There is no registry to edit. Variants of one formula may share a file, which lists their names on top:
`PLUGINS = ("krum", "multi_krum")` are its classes Krum and MultiKrum. A plugin
class carries a `card` that says what it is, and a nested frozen dataclass `Config` whose fields are its
only settings.
"""

import ast
import contextlib
import dataclasses
import difflib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError, suggest_name
from fedaudit.fl.runtime.records import check_types
from fedaudit.fl.runtime.settings import check_settings, plain

T = TypeVar("T")
_MISSING: Final = object()
MOST_LISTED, MOST_FOLDERS = 40, 3  # names in a hint, folders in a sentence
LIKE = 0.75  # how like two names are of which one is the other misspelt: crad and card


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
            check_settings(type(self.config), plain(self.config), name_of(type(self)))


def names(*packages: str) -> list[str]:
    """Names of the plugins in some packages, read from their files without importing them."""
    return sorted(_find_modules(packages))


def name_of(cls: type[Any]) -> str:
    """The name of a plugin class: as its file lists it, or the name of its module."""
    own = [name for name in _list_beside(cls) if _has_name(cls, name)]
    return own[0] if own else cls.__module__.rpartition(".")[2]


def is_shipped(plugin: object) -> bool:
    """Whether a plugin, or its class, is no code of a team's own, whose words about itself nobody checked."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    return cls.__module__.partition(".")[0] == foreign.OURS


def shares_file(cls: type[Any]) -> bool:
    """Whether the file of a plugin class defines several plugins."""
    return bool(_list_beside(cls))


def _list_beside(cls: type[Any]) -> tuple[str, ...]:
    names = getattr(sys.modules.get(cls.__module__), "PLUGINS", ())
    return names if isinstance(names, tuple) else ()


def _find_modules(packages: Sequence[str]) -> dict[str, str]:
    """Plugin name -> module; raises UserError where two files have a plugin of one name."""
    modules: dict[str, str] = {}
    for package in packages:
        folders = tuple(importlib.import_module(package).__path__)
        for folder, file in _list_files(folders, tuple(map(_read_time, folders))):
            module = f"{package}.{file}"
            for name in _read_shared_names(folder, file) or (file,):
                if name in modules:
                    one, two = (_locate_file(m) for m in (modules[name], module))
                    raise UserError(
                        f"two plugins are called {name!r}: {one} and {two}", hint="rename one of them"
                    )
                modules[name] = module
    return modules


def _read_time(folder: str) -> int:
    """When entries of a folder last changed; 0 in an archive, which does not change."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@cache
def _list_files(folders: tuple[str, ...], changed: tuple[int, ...]) -> list[tuple[str, str]]:  # noqa: ARG001
    """Folder and name of each public module in folders that last `changed` then."""
    found = [(getattr(i.module_finder, "path", ""), i.name) for i in pkgutil.iter_modules(folders)]
    return [(folder, name) for folder, name in found if not name.startswith("_")]


def _read_shared_names(folder: str, file: str) -> tuple[str, ...]:
    """The names in PLUGINS of a file, without importing it; none where the file is one plugin."""
    path = os.path.join(folder, f"{file}.py")
    try:
        return _read_names(path, os.stat(path).st_mtime_ns)
    except OSError:  # a package, or a file in an archive
        return ()


@cache
def _read_names(path: str, changed: int) -> tuple[str, ...]:  # noqa: ARG001
    """PLUGINS of a file as it was last `changed`; a file that is no Python is refused when it is imported."""
    source = Path(path).read_bytes()
    if b"\nPLUGINS = " not in source:  # most files: reading is much faster than parsing
        return ()
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["PLUGINS"]:
                return tuple(map(str, ast.literal_eval(node.value)))
    return ()


def _locate_file(module: str) -> str:
    """A module of ours as a file of the repository: "fl/methods/fedavg.py"."""
    return module.removeprefix("fedaudit.").replace(".", "/") + ".py"


def find_module(packages: Sequence[str], name: str, where: str = "") -> str:
    """The module that defines `name`; raises UserError where there is none, naming the nearest known name.

    `where` is the key in the config that errors name.
    """
    modules = _find_modules(packages)
    if name not in modules:
        shelf = " or ".join(_locate_file(p).removesuffix(".py") + "/" for p in packages)
        shelf = shelf if len(packages) <= MOST_FOLDERS else f"{shelf.partition('/')[0]}/"  # attacks/
        every = f"known: {', '.join(sorted(modules))}"
        if len(modules) > MOST_LISTED:
            every = f"`fedaudit tools list {shelf.strip('/').rpartition('/')[2]}` lists what there is"
        hint = suggest_name(name, modules, every)
        raise UserError(f"{where}: no {name!r} in {shelf}".removeprefix(": "), hint=hint, key=where)
    return modules[name]


def load(
    packages: str | Sequence[str], name: str, base: type[T], where: str = "", *, takes_functions: bool = False
) -> type[T]:
    """The plugin class called `name`: of a file of one of the packages, or "module:Class".

    Raises UserError where there is none, or where it lacks what `base` asks for, naming the key `where`.
    """
    if ":" in name:
        return _load_foreign(name, base, where, takes_functions)
    shelf = (packages,) if isinstance(packages, str) else tuple(packages)
    loaded: type[T] | None = _LOADED.get((shelf, name, base))
    if loaded is None:
        loaded = _import_class(find_module(shelf, name, where), name, base)
        _check_contract(loaded, base, where)
        _LOADED[shelf, name, base] = loaded
    return loaded


_LOADED: Final[dict[tuple[Any, ...], Any]] = {}  # an audit asks some thousand times


def _import_class(path: str, name: str, base: type[T]) -> type[T]:
    module = importlib.import_module(path)
    classes = [
        c
        for _, c in inspect.getmembers(module, inspect.isclass)
        if issubclass(c, base)
        and c is not base
        and c.__module__ == module.__name__
        and not c.__name__.startswith("_")
    ]
    # helper classes of the same base may stand beside the plugin
    named = [c for c in classes if _has_name(c, name)]
    shared = name in getattr(module, "PLUGINS", ())
    candidates = named if named or shared else classes
    if len(candidates) != 1:
        called, thing = (f" called {name!r}", "plugin") if shared else ("", "file")
        raise UserError(
            f"{module.__name__} must define one {base.__name__}{called}, found {len(candidates)}",
            hint=f"name the class as the {thing}, in CamelCase",
        )
    return candidates[0]


def _has_name(cls: type[Any], name: str) -> bool:
    """Whether a class is `name` in CamelCase: SmallCNN is small_cnn."""
    return cls.__name__.lower() == name.replace("_", "").lower()


def _load_foreign(name: str, base: type[T], where: str, takes_functions: bool) -> type[T]:
    cls = foreign.find(name, where)
    if takes_functions and inspect.isfunction(cls):  # called as a class is
        return cast(type[T], cls)
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise UserError(
            f"{where}: {name!r} is not {_with_article(base.__name__)}".removeprefix(": "),
            hint=f"derive it from {base.__module__}:{base.__name__}",
            key=where,
        )
    _refuse_misspelt(cls, base, where)
    _check_contract(cls, base, where)
    return cls


def _refuse_misspelt(cls: type[Any], base: type[Any], where: str) -> None:
    """Raise UserError for a constant of somebody's class that nothing reads, and is nearly one that is read."""
    if not is_shipped(base):  # torch's, say
        return
    above = [(n, v) for b in cls.__mro__[1:] for n, v in vars(b).items() if not n.startswith("_")]
    read = {n for n, v in above if not isinstance(v, FunctionType)}
    for name, value in vars(cls).items():
        if name.startswith("_") or name in read or isinstance(value, FunctionType | property | classmethod):
            continue
        if near := difflib.get_close_matches(name, read - set(vars(cls)), n=1, cutoff=LIKE):
            raise _refuse(cls, f"sets {name}, which nothing reads", f"did you mean {near[0]!r}?", where)


def _check_contract(cls: type[Any], base: type[Any], where: str) -> None:
    """Raise UserError for the first thing that a class derived from `base` has to have, and has not."""
    for owner in (c for c in base.__mro__ if c.__module__.partition(".")[0] == foreign.OURS):
        for name, kind in inspect.get_annotations(owner).items():
            value = getattr(cls, name, _MISSING)
            is_stated = kind is str or (inspect.isclass(kind) and dataclasses.is_dataclass(kind))
            if not is_stated or hasattr(value, "__get__"):  # others are set by each instance
                continue
            if isinstance(value, kind):
                _check_record(cls, name, value, where)
                continue
            text = '"..."' if kind is str else f"{kind.__name__}(...)"
            fault = f"has no {name}" if value is _MISSING else f"has {name} = {value!r:.80}"
            raise _refuse(cls, fault, f"write {name} = {text} in the class", where)
        for name, declared in vars(owner).items():
            wanted, own = (getattr(f, "__func__", f) for f in (declared, getattr(cls, name)))
            if name.startswith("_") or not inspect.isfunction(wanted):
                continue
            line = f"def {name}({', '.join(inspect.signature(wanted).parameters)})"
            if getattr(own, "__isabstractmethod__", False):
                raise _refuse(cls, f"has no {name}()", f"write {line} in the class", where)
            if own is not wanted and not _takes(own, wanted):
                raise _refuse(cls, f"has a {name}() that takes something else", f"it is called as {line}", where)


def _check_record(cls: type[Any], name: str, value: object, where: str) -> None:
    if dataclasses.is_dataclass(value):
        try:
            check_types(value)
        except TypeError as error:
            raise _refuse(
                cls, f"has a wrong {name}: {error}", f"write another {name} in the class", where
            ) from None


def _refuse(cls: type[Any], fault: str, hint: str, where: str) -> UserError:
    return UserError(f"{where}: {cls.__name__} {fault}".removeprefix(": "), hint=hint, key=where)


def _takes(own: Any, wanted: Any) -> bool:
    """Whether one can be called as the other is; what Python cannot look into is believed."""
    given = inspect.signature(wanted).parameters.values()
    by_name = {p.name: p for p in given if p.kind is p.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*(p for p in given if p.kind is p.POSITIONAL_OR_KEYWORD), **by_name)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "AEIOU" else f"a {noun}"


def configure(cls: type[Any], settings: Mapping[str, Any], where: str) -> Any:
    """An instance of `cls` with settings checked against its Config and converted by declared type.

    `where` is the path in the config file ("attacks[2]") that errors name.
    """
    return cls(check_settings(cls.Config, settings, where))
