"""YAML as people should write it: duplicate keys, NaN and Python objects are refused by line number."""

import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from fedaudit.fl.runtime.errors import UserError

MOST_BYTES = 1_000_000
MOST_VALUES = 100_000
DEEPEST = 40
LARGEST = 2**63  # of a whole number


try:
    from yaml import CSafeLoader as _Safe  # libyaml's parser, ten times as fast
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader as _Safe  # type: ignore[assignment]


class _Loader(_Safe):
    """PyYAML's safe loader, which builds no Python objects, with duplicate keys refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<: *base` may be overridden
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str | int | float | bool | None):
                raise yaml.constructor.ConstructorError(None, None, "a key must be one word", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is already on line {seen[key]}", key_node.start_mark
                )
            seen[key] = line
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises UserError, with the line where there is one, for a file that is missing, not text, not
    YAML, too large or too deep, or that holds a duplicate key, NaN or a Python object.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file", hint=f"name a file in it: {_some_of(path)}")
    if not path.is_file():
        raise UserError(f"no file {path}", hint="check the path; configs/ has examples")
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} is larger than 1 MB", hint="a config is a page of text")
    try:
        data = yaml.load(_read_shallow(path), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text: {error}", hint="name a YAML config saved as UTF-8; `fedaudit init` writes one"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}" if mark else ""
        what = (error.problem or error.context or "cannot be read").strip()
        raise UserError(
            f"{path}{where}: not valid YAML: {what}", hint="look at that line and the one before it"
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-99-99
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: not valid YAML: {first}", hint="save it as plain YAML") from error
    _check_values(data, path)
    return data


def _read_shallow(path: Path) -> str:
    """The text of a YAML file; raises UserError for one whose levels would overflow libyaml's stack."""
    text, level = path.read_text(encoding="utf-8"), 0
    for event in yaml.parse(text, Loader=_Safe):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > DEEPEST + 1:
            raise UserError(f"{path} is nested too deeply", hint="a config has few levels")
    return text


def _check_values(data: Any, path: Path) -> None:
    """Refuse values that no setting can have, and aliases that unfold to a huge tree."""
    stack: list[tuple[Any, str, int]] = [(data, "", 0)]
    count = 0
    while stack:
        value, where, depth = stack.pop()
        count += 1
        if count > MOST_VALUES or depth > DEEPEST:
            raise UserError(f"{path} unfolds to too many values", hint="use fewer or smaller aliases (*name)")
        if isinstance(value, float) and math.isnan(value):
            raise UserError(f"{path}:{line_of(path, where)}: {where} is NaN", hint="write a number")
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise UserError(
                f"{path}:{line_of(path, where)}: {where} has {len(str(value))} digits",
                hint="whole numbers must be below 2^63",
            )
        if isinstance(value, dict):
            stack += [(v, f"{where}.{k}" if where else str(k), depth + 1) for k, v in value.items()]
        elif isinstance(value, list):
            stack += [(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]


def line_of(path: Path, key: str) -> int | None:
    """The line, from 1, on which a key such as "attacks[2].steps" stands, or the innermost group around it."""
    try:
        node = yaml.compose(_read_shallow(path), Loader=_Loader)
    except (OSError, ValueError, yaml.YAMLError, UserError):
        return None
    line = None
    for part in re.findall(r"[^.\[\]]+", key):
        found = _below(node, part)
        if found is None:
            break
        line, node = found
    return line


def _below(node: yaml.Node | None, part: str) -> tuple[int, yaml.Node] | None:
    """The line and the node of one key or list entry; those of a group merged by `<<` count as its own."""
    if isinstance(node, yaml.SequenceNode):
        inside = part.isdecimal() and int(part) < len(node.value)
        return (node.value[int(part)].start_mark.line + 1, node.value[int(part)]) if inside else None
    if not isinstance(node, yaml.MappingNode):
        return None
    merged = None
    for key, value in node.value:
        if key.value == part:
            return key.start_mark.line + 1, value
        if key.tag == "tag:yaml.org,2002:merge":
            several = value.value if isinstance(value, yaml.SequenceNode) else [value]
            merged = next(filter(None, (_below(v, part) for v in several)), merged)
    return merged


def _some_of(folder: Path) -> str:
    found = sorted(p.name for p in folder.glob("*.y*ml"))[:5]
    return ", ".join(found) or "it has no .yaml file"
