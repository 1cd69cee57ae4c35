"""What somebody handed over, before a byte of it is parsed: regular files only, within budgets, in strict forms.

A link, a hard one too, could show another file's text, a pipe or a device never ends, a sparse file is larger
than any memory, a name could print a verdict. So a folder is looked through without following anything, and JSON
is read into the form it must have.
"""

import os
import stat
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.special_files import refuse_hard_link
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.visible import visible_name

T = TypeVar("T")
MOST_FILES = 2_000_000
MOST_BYTES = {".json": 1 << 28, ".jsonl": 1 << 31, ".safetensors": 1 << 33}  # of one file, by the end of its name
OTHERS = 1 << 28
DEEPEST = 12
HINT = "do not trust this folder; ask for one with plain files only"


def survey(folder: Path, *, hard_links: bool = False) -> None:
    """Look through a folder, following nothing; only examples may be `hard_links`, as data sets often are.

    Raises UserError naming the first link, pipe, socket or device, the first name in which a sign is hidden, the
    first file above its budget of bytes, and a folder with too many files or too deep.
    """
    todo, seen = [(os.fspath(folder), 0)], 0
    while todo:
        at, depth = todo.pop()
        try:
            with os.scandir(at) as entries:
                found = sorted(entries, key=lambda e: e.name)
        except OSError as error:
            raise UserError(f"cannot read {at}: {error.strerror}", hint="check who may read there") from error
        seen += len(found)
        if seen > MOST_FILES or depth > DEEPEST:
            what = f"more than {MOST_FILES:,} files" if seen > MOST_FILES else f"folders {depth} deep"
            raise UserError(f"{folder} holds {what}", hint=HINT)
        for entry in found:
            if (shown := visible_name(entry.name)) != entry.name:
                raise UserError(f"a name in {at} hides a sign: {shown}", hint=f"rename it, or {HINT}")
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                todo.append((entry.path, depth + 1))
            else:
                _require_plain(entry.path, info)
                if not hard_links:
                    refuse_hard_link(entry.path, info)


def _require_plain(path: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        sorts = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        what = sorts.get(stat.S_IFMT(info.st_mode), "a device")
        raise UserError(f"{path} is {what}, not a file", hint=HINT)
    most = MOST_BYTES.get(os.path.splitext(path)[1], OTHERS)
    if info.st_size > most:
        raise UserError(f"{path} has {info.st_size:,} bytes, and at most {most:,} are read", hint=HINT)


def parse(data: bytes, form: type[T], where: str) -> T:
    """JSON in this form, nothing converted. A field that has a default may be missing: an older version had none.

    Raises UserError that says where it is not.
    """
    try:
        parse_json(data)  # refuses keys given twice and other things that pydantic's reader takes
        found: T = _build_reader(cast(Hashable, form)).validate_json(data, strict=True)
        return found
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        text = f"{key}: {first['msg']}" if key else first["msg"]
        raise UserError(f"{where} is damaged: {text}", hint="restore it, or run its phase again") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is damaged: {error}", hint="restore it, or run its phase again") from error


@cache
def _build_reader(form: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, form))  # made once: it compiles the form


def plain_json(data: bytes, where: str) -> Any:
    """JSON of no form yet."""
    try:
        return parse_json(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is damaged: {error}", hint="restore it, or run its phase again") from error
