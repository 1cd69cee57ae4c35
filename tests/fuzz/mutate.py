"""Changes to files as plain values, so that what once failed can be kept: [what, file, where, with what].

`file` and `where` are fractions of what there is, so a change fits any folder.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

Change = Sequence[Any]
NASTY: list[Any] = [
    *(None, True, -1, 0, 1, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x" * 300, "\x00"),
    *("\x1b[2J\u202e", "../../mine.txt", "/etc/passwd", "NaN", "1e400", [], {}, [[]], [None], {"": None}),
    *(
        {"name": "..:x"},
        "..:x",
        "a:b",
        ["x"] * 50,
        {"a": {"b": {"c": [1, {"d": None}]}}},
        "server/0",
        "client/-1",
    ),
]
BYTES = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"[" * 20000,
    b"\n",
    b'{"a":1e999}',
    b"\x1f\x8b\x08",
    b"PK\x03\x04",
    b"NaN",
]


def apply(folder: Path, changes: Sequence[Change]) -> None:
    """All of them, in order; one that does not fit the folder does nothing."""
    for what, file, where, value in changes:
        files = sorted(p for p in folder.rglob("*") if _small(p))
        if not files:
            return
        path = files[_pick(file, len(files))]
        if what in ("value", "drop", "twice"):
            _structured(path, what, where, NASTY[int(value) % len(NASTY)])
        elif what in ("cut", "insert", "flip", "whole"):
            _bytes(path, what, where, BYTES[int(value) % len(BYTES)])
        else:
            _file(path, what, files[_pick(where, len(files))])


def _small(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24


def _pick(fraction: float, count: int) -> int:
    return min(int(fraction * count), count - 1)


def _bytes(path: Path, what: str, where: float, piece: bytes) -> None:
    data = path.read_bytes()
    at = int(where * len(data))
    if what == "flip" and data:
        at = min(at, len(data) - 1)
        data = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
    elif what == "cut":
        data = data[:at]
    else:
        data = piece if what == "whole" else data[:at] + piece + data[at:]
    path.write_bytes(data)


def _structured(path: Path, what: str, where: float, value: Any) -> None:
    """JSON, one line of JSON lines, or YAML: one value replaced, left out or given twice."""
    text = path.read_text(errors="replace")
    try:
        if path.suffix == ".json":
            path.write_text(json.dumps(_changed(json.loads(text), what, where, value)))
        elif path.suffix == ".jsonl":
            lines = text.splitlines()
            at = _pick(where, len(lines))
            lines[at] = json.dumps(_changed(json.loads(lines[at]), what, (where * 7919) % 1, value))
            path.write_text("\n".join([*lines, lines[at]] if what == "twice" else lines) + "\n")
        elif path.suffix in (".yaml", ".yml"):
            path.write_text(yaml.safe_dump(_changed(yaml.safe_load(text), what, where, value)))
        else:
            _bytes(path, "flip", where, b"")
    except (ValueError, IndexError, yaml.YAMLError, RecursionError):
        _bytes(path, "flip", where, b"")


def _changed(tree: Any, what: str, where: float, value: Any) -> Any:
    places = list(_places(tree))
    if not places:
        return value
    holder, key = places[_pick(where, len(places))]
    if what == "value":
        holder[key] = value
    elif what == "drop":
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[f"{key}_more"] = holder[key]
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from _places(value)


def _file(path: Path, what: str, other: Path) -> None:
    if what == "swap":
        kept = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(kept)
    elif what == "copy" and path != other:
        shutil.copyfile(path, other)
    elif what == "more":
        shutil.copyfile(path, path.with_name(f"0{path.name}"))
    else:
        path.unlink()
        if what == "link":
            path.symlink_to("../mine.txt")
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "folder":
            path.mkdir()
        elif what == "sparse":
            with open(path, "wb") as file:
                file.truncate(100 << 30)
