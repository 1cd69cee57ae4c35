"""What a command may open: the files that the user named, below some of them also to write, and nothing else."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.cli.box import Access
from fedaudit.audit.settings.consent import find_kept
from fedaudit.audit.settings.index import find_folder
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import DATA


def derive_access(
    given: Mapping[str, Any],
    *,
    writes: Sequence[str],
    own: Sequence[str],
    files: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Access:
    """Access of a command to the paths among its arguments.

    Args:
        given: The command's arguments by name: paths, lists of them, `NAME=PATH`, and text that names a file.
        writes: Which of them are folders that are written, with all below them.
        own: Which of them are configs of the user, who may name data, policies and code elsewhere.
        files: Which of them are files that are written; each is put together in its folder and renamed.
        more: Paths that are read where they are there, without an argument.
    """
    reads = [path for path in map(Path, more) if os.path.exists(path)]
    reads += [path for value in given.values() for path in _paths(value)]
    for name in own:
        path = given.get(name)
        if isinstance(path, Path) and os.path.isfile(path):
            reads += [path.absolute().parent, *_named_in(path)]
    reads += [DATA, *([folder] if (folder := find_folder()) else [])]
    folders = [given[name].absolute() for name in writes if given.get(name) is not None]
    if "trust" in given and (kept := find_kept()):  # the user may be asked for a consent
        folders.append(kept)
    return Access(reads, [*folders, *(given[name].absolute().parent for name in files if given.get(name))])


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        path = os.path.expanduser(value.partition("=")[2] or value)
        if os.path.exists(path):  # False of what can be no path, such as a page of text
            yield Path(path)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _paths(one)


def _named_in(config: Path) -> Iterator[Path]:
    from fedaudit.fl.runtime.yaml import read_yaml

    try:
        waiting = [read_yaml(config)]
    except UserError:  # the command says so
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and ("/" in value or "." in value):
            yield from _paths(value)
