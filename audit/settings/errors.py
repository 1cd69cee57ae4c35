"""What is wrong with a config, in one sentence: the key's path, what it must be and what it is."""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fl.errors import UserError

M = TypeVar("M", bound=BaseModel)
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a group of keys",
    "model_type": "a group of keys",
}
_BOUNDS = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}


def validate(model: type[M], data: Any, where: str) -> M:
    """`data` as a `model`; raises UserError for the first thing wrong. `where` names the file."""
    if not isinstance(data, Mapping):
        found = "is empty" if data is None else f"holds {_shown(data)}, not keys with values"
        raise UserError(f"{where} {found}", hint=f"begin with one of: {', '.join(model.model_fields)}")
    _check_keys(model, data, where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explained(model, error, where) from error


def _check_keys(model: type[BaseModel], data: Mapping[Any, Any], where: str, path: str = "") -> None:
    """Unknown keys come first: a misspelt key is the likeliest cause of whatever else is wrong."""
    if model.model_config.get("extra") == "allow":
        return
    known = model.model_fields
    for key, value in data.items():
        place = f"{path}.{key}" if path else str(key)
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)
            raise UserError(f"{where}: unknown key {place}", hint=hint)
        for inner, item, at in _inner(known[key], value, place):
            _check_keys(inner, item, where, at)


def _inner(field: FieldInfo, value: Any, place: str) -> list[tuple[type[BaseModel], Mapping[Any, Any], str]]:
    """The models below a field with the data that belongs to each."""
    kinds = [field.annotation, *get_args(field.annotation)]
    models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
    if not models:
        return []
    if isinstance(value, Mapping):
        return [(models[0], value, place)]
    if isinstance(value, list):
        pairs = [(v, f"{place}[{i}]") for i, v in enumerate(value) if isinstance(v, Mapping)]
        return [(models[0], v, at) for v, at in pairs]
    return []


def _explained(model: type[BaseModel], error: ValidationError, where: str) -> UserError:
    first = error.errors()[0]
    path, kind, context = "", first["type"], first.get("ctx", {})
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    hint = _hint(model, first["loc"])
    if kind == "missing":
        return UserError(f"{where}: {path} is missing", hint=hint or f"add {path}")
    if kind == "value_error":  # one of our own validators: a whole phrase
        message = str(context["error"])
    elif kind in ("literal_error", "enum"):
        message = f"must be {context['expected']}"
    elif kind in _BOUNDS:
        message = f"must be {_BOUNDS[kind]} {next(iter(context.values()))}"
    elif kind in _EXPECTED:
        message = f"must be {_EXPECTED[kind]}"
    else:
        message = first["msg"][0].lower() + first["msg"][1:]
    got = "" if ", got " in message else f", got {_shown(first['input'])}"
    return UserError(f"{where}: {path} {message}{got}".replace(":  ", ": "), hint=hint)


def _hint(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """What the field is for, as its description says."""
    found, current = "", model
    for part in loc:
        field = current.model_fields.get(str(part)) if isinstance(part, str) else None
        if field is not None:
            found = f"{part}: {field.description}" if field.description else found
            kinds = [field.annotation, *get_args(field.annotation)]
            models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
            current = models[0] if models else current
    return found or "`fedaudit show CONFIG` prints every key with its default"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
