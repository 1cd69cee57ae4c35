"""Settings: values checked against what was declared, and what is wrong with one, as a sentence and a hint.

A setting is one line of a class under `@settings`, or of a pydantic model; it gives the type, the bounds, the
default and the words of `fedaudit show`, of the JSON Schema and of the errors:

    mu: float = Field(default=0.01, ge=0, description="proximal weight; the paper searches 0.001 to 1")
"""

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fedaudit.fl.runtime.errors import UserError, suggest_name

T = TypeVar("T")
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number below 2^63",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a group of keys",
    "mapping_type": "a group of keys",
    "model_type": "a group of keys",
    "dataclass_type": "a group of keys",
    "none_required": "null",
}
_BOUNDS = {
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
}
SHOW = "`fedaudit show CONFIG` prints every key with its value"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def settings(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose lines are settings: `x: float = Field(default=0.1, ge=0)`."""
    for name, value in list(vars(cls).items()):
        if not isinstance(value, FieldInfo):
            continue
        cls.__annotations__[name] = Annotated[cls.__annotations__[name], value]
        if value.default_factory is not None:
            setattr(cls, name, dataclasses.field(default_factory=cast(Any, value.default_factory)))
        elif value.default is PydanticUndefined:
            delattr(cls, name)
        else:
            setattr(cls, name, value.default)
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def check_settings(declared: type[T], given: Mapping[Any, Any], where: str = "") -> T:
    """`given` as a `declared` (a dataclass or a model), converted by declared type: "1e-5" is a number.

    `where` is the path of the group in the config ("attacks[2]"), empty at its top. Raises UserError, with the
    setting's path as its key, for the first thing wrong.
    """
    _check_keys(declared, given, where)
    try:
        found: T = adapter(cast(Any, declared)).validate_python(dict(given))
        return found
    except ValidationError as error:
        raise _explain_error(declared, error, given, where) from error
    except UserError as error:  # a check of several settings together, in __post_init__
        raise UserError(error.sentence, hint=error.hint, key=error.key or where) from error


@cache
def adapter(declared: Any) -> TypeAdapter[Any]:
    """Pydantic's validator of a class; building one costs a millisecond."""
    return TypeAdapter(declared)


@cache
def fields(declared: Any) -> dict[str, FieldInfo]:
    """The settings of a dataclass or a model: name -> type, default, bounds, description."""
    if issubclass(declared, BaseModel):
        return dict(declared.model_fields)
    if any(isinstance(value, FieldInfo) for value in vars(declared).values()):
        raise UserError(
            f"{declared.__module__}.{declared.__qualname__} has settings and no @settings above it",
            hint="from fedaudit.fl.runtime.settings import settings",
        )
    hints = typing.get_type_hints(declared, include_extras=True)
    return {f.name: FieldInfo.from_annotation(hints[f.name]) for f in dataclasses.fields(declared)}


def plain(config: Any) -> dict[str, Any]:
    """The fields of a dataclass, those of dataclasses in it as well."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init}
    return {k: plain(v) if _group(type(v)) else v for k, v in values.items()}


def _check_keys(declared: Any, given: Mapping[Any, Any], where: str) -> None:
    """Unknown keys come first: a misspelt key is the likeliest cause of whatever else is wrong.

    So does a true or false where a number belongs, which pydantic reads as 1 or 0.
    """
    if getattr(declared, "model_config", {}).get("extra") == "allow":
        return
    known = fields(declared)
    for key, value in given.items():
        place = _join_keys(where, str(key))
        if key not in known:
            hint = suggest_name(key, known, "known: " + (", ".join(known) or "no settings"))
            raise UserError(f"unknown key {place}", hint=hint, key=place)
        kinds = set(_list_classes(known[key].annotation))
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            number = "a number" if float in kinds else "a whole number"
            hint = _find_hint(declared, (key,)) or SHOW
            raise UserError(f"{place} must be {number}, got {value}", hint=hint, key=place)
        for group in filter(_group, kinds):
            items = enumerate(value) if isinstance(value, list | tuple) else ()
            inner = [(value, place), *((item, f"{place}[{i}]") for i, item in items)]
            for item, at in inner:
                if isinstance(item, Mapping):
                    _check_keys(group, item, at)


def _list_classes(annotation: Any) -> Iterator[Any]:
    """The classes in a type: those of a union, the entries of a list, the values that are listed."""
    yield annotation
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        arguments = arguments[:1]
    if typing.get_origin(annotation) is typing.Literal:
        arguments = tuple(map(type, arguments))
    for inner in arguments:
        yield from _list_classes(inner)


def _group(kind: Any) -> bool:
    """Whether a type is a group of settings."""
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))


def _explain_error(declared: Any, error: ValidationError, given: Mapping[Any, Any], where: str) -> UserError:
    errors = error.errors()
    first = errors[0]
    key = _format_path(first["loc"], given, where, absent=first["type"] == "missing")
    hint = _find_hint(declared, first["loc"])
    if first["type"] == "missing" and isinstance(first["loc"][-1], str):
        return UserError(f"{key} is missing", hint=hint or f"add {key}", key=key)
    # of a union every member says why it does not fit
    key = _format_path(first["loc"], given, where)
    same = [e for e in errors if _format_path(e["loc"], given, where) == key]
    problems = list(dict.fromkeys(describe_problem(e) for e in same))
    for begin in ("must be ", "must "):
        if all(p.startswith(begin) for p in problems):
            problems = [begin + " or ".join(p.removeprefix(begin) for p in problems)]
    problem, value = problems[0], first["input"]
    if first["type"] == "missing":  # of a list with so many entries, the last of which is missing as well
        problem = f"must have at least {int(same[-1]['loc'][-1]) + 1} entries"
    got = "" if ", got " in problem else f", got {_show_value(value)}"
    known = re.findall(r"'([^']+)'", problem) if isinstance(value, str) else []
    hints = filter(None, (suggest_name(value, known), hint or SHOW))
    return UserError(f"{key} {problem}{got}".strip(), hint="; ".join(hints), key=key)


def describe_record(error: ValidationError) -> str:
    """Which field of a record is wrong, what it must be and what was found, as a phrase."""
    first = error.errors()[0]
    field = ".".join([error.title, *map(str, first["loc"])])
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} {describe_problem(first)}, got {_show_value(first['input'])}"


def describe_problem(first: Any) -> str:
    """What a value must be, as a phrase that follows its name."""
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":  # one of our own validators: a whole phrase
        return str(context["error"])
    if kind in ("literal_error", "enum"):
        return f"must be {context['expected']}"
    if kind in _BOUNDS:
        found = _BOUNDS[kind].format(**{k: _shorten(v) for k, v in context.items()})
        return re.sub(r" 1 (entr|character)\w+", lambda m: f" 1 {'entry' if m[1] == 'entr' else m[1]}", found)
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}"
    return "must be as its description says"


def _format_path(loc: tuple[int | str, ...], given: Any, where: str, absent: bool = False) -> str:
    """The place in the config: pydantic's own marks in `loc`, such as which member of a union, are left out."""
    path, at = where, given
    for part in loc:
        if isinstance(at, Mapping) and part in at:
            path, at = _join_keys(path, str(part)), at[part]
        elif isinstance(at, list | tuple) and isinstance(part, int) and part < len(at):
            path, at = f"{path}[{part}]", at[part]
        elif absent and part == loc[-1]:
            path = _join_keys(path, str(part))
    return path


def _join_keys(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _find_hint(declared: Any, loc: tuple[int | str, ...]) -> str:
    """What the setting is for, as its description says; empty where it has none."""
    found, current = "", declared
    for part in loc:
        field = fields(current).get(str(part)) if isinstance(part, str) and _group(current) else None
        if field is not None:
            found = f"{part}: {field.description}" if field.description else found
            current = next(filter(_group, _list_classes(field.annotation)), current)
    return found


def _shorten(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _show_value(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
