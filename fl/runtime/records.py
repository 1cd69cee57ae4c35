"""Records that plugins make: their fields, held against the types that are declared for them."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Hashable
from functools import cache
from typing import Any, cast

from pydantic import ConfigDict, InstanceOf, TypeAdapter, ValidationError

from fedaudit.fl.runtime.errors import BrokenPlugin


def check_types(record: Any) -> None:
    """Raise TypeError for the first field of a dataclass that is not of its declared type, to the letter.

    What is nearly of it no file of evidence can hold: a set for a tuple, a whole number of numpy's.
    """
    for name, (adapter, words) in _list_fields(cast(Hashable, type(record))).items():
        value = getattr(record, name)
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError:
            raise TypeError(f"{type(record).__name__}.{name} must be {words}, got {quote(value)}") from None


def check_returned(name: str, contract: type[Any], method: str, value: Any) -> None:
    """Raise TypeError for a value that a plugin of this name returned of a method of its contract."""
    hint = _find_return(cast(Hashable, contract), method)
    try:
        _make_adapter(hint).validate_python(value, strict=True)
    except ValidationError:
        what = f"{name}: {method}() must return {name_type(hint)}"
        raise TypeError(f"{what}, got {quote(value)}") from None
    for record in value if isinstance(value, list) else ():
        check_types(record)


def quote(value: object) -> str:
    """The beginning of what a value looks like, in one line."""
    return " ".join(repr(value).split())[:80]


def require_returned(plugin: object, contract: type[Any], method: str, value: Any) -> None:
    """As `check_returned` where nothing can go on without it: raises BrokenPlugin."""
    try:
        check_returned(type(plugin).__name__, contract, method, value)
    except TypeError as error:
        raise BrokenPlugin(str(error), hint=f"let {method}() end with `return ...`") from None


@cache
def _list_fields(cls: Any) -> dict[str, tuple[TypeAdapter[Any], str]]:
    """By name: what checks a field of a dataclass, and its type as somebody would write it."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: (_make_adapter(hints[f.name]), name_type(hints[f.name])) for f in dataclasses.fields(cls)}


@cache
def _make_adapter(hint: Any) -> TypeAdapter[Any]:
    if dataclasses.is_dataclass(hint):  # whose fields are held against theirs where it is made
        return TypeAdapter(InstanceOf[hint])
    return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))


@cache
def _find_return(contract: Any, method: str) -> Any:
    """The type that a method is declared to return."""
    return typing.get_type_hints(getattr(contract, method))["return"]


def name_type(hint: Any) -> str:
    """A type without the modules of its parts: Mapping[int, tuple[int, ...]]."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))
