"""The index: what follows from our files alone, kept in the user's cache folder so that nothing is imported.

The cards that `fedaudit tools list` prints and the defaults of a config are found by importing plugins, and torch
with them. They are kept with the state of every file of ours and the versions of what is installed, and made anew
when one of them changes.
Without the index, or without a place to keep it, all stays the same but the time.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

ROOT = Path(__file__).parents[2]  # the folder of the package fedaudit
PACKAGES = ("fl", "attacks", "audit", "reports")
BROKEN = "cannot be loaded: "
MOST = 64  # values kept under a name


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One plugin as `fedaudit tools list` prints it."""

    name: str
    title: str
    source: str  # the paper; for a section its place in the report
    text: str  # one line
    more: dict[str, str] = dataclasses.field(default_factory=dict)  # further columns


def entries(kind: str, make: Callable[[], list[Entry]]) -> list[Entry]:
    """The cards of a kind: as kept, or from `make`, which imports the plugins."""
    kept = recall(kind, "cards")
    try:
        found = [Entry(**fields) for fields in kept] if isinstance(kept, list) else None
    except TypeError:
        found = None
    if found is None or not all(map(_is_card, found)):
        found = make()
        if not any(e.text.startswith(BROKEN) for e in found):  # it may load once something is installed
            keep(kind, "cards", [dataclasses.asdict(e) for e in found])
    return found


def recall(name: str, key: str) -> Any:
    """What was kept under a name and a key; None where there is nothing, or it is of other files, or damaged."""
    return recall_all(name).get(key)


def keep(name: str, key: str, value: Any) -> None:
    """Keep a plain value for later processes; a folder that cannot be written is no error."""
    if (file := _file(name)) is not None:
        with contextlib.suppress(UserError, OSError), durable.take_turn(file.parent):
            newest = list(recall_all(name).items())[-MOST + 1 :]
            content = {
                "state": _state(),
                "values": dict([(k, v) for k, v in newest if k != key] + [(key, value)]),
            }
            durable.write(file, json.dumps(content).encode())


def digest_states(paths: Iterable[Path], without: Collection[str] = ()) -> str:
    """Changes with any file at or below these paths, none of which is read: by its place, its size and two times.

    One of the times is that of the last change by the system's clock, which nobody sets back as `cp -p` does the
    other. A path where nothing is counts too, since something may come there. `without` are names of folders.
    """
    seen, folders = hashlib.sha256(), set[tuple[int, int]]()
    waiting = [os.path.abspath(path) for path in paths]
    while waiting:
        at, state = waiting.pop(), "cannot be opened"
        with contextlib.suppress(OSError):
            found = os.stat(at)
            state = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
            if S_ISDIR(found.st_mode):
                state = "a folder"
                if (found.st_dev, found.st_ino) not in folders:  # no link that leads back
                    folders.add((found.st_dev, found.st_ino))
                    waiting += [os.path.join(at, name) for name in sorted(os.listdir(at)) if name not in without]
        seen.update(os.fsencode(f"{at} {state}\n"))
    return seen.hexdigest()


@cache
def _state() -> str:
    """Changes with any file of ours, since a card may read what another file defines, and with what is installed.

    Of a process it is that of its first question: what changes later is not what it runs.
    """
    installed = {sys.version}  # and names that end in versions, such as numpy-2.4.6.dist-info
    for folder in sys.path:
        with contextlib.suppress(OSError):
            installed.update(name for name in os.listdir(folder) if name.endswith(".dist-info"))
    ours = digest_states((ROOT / package for package in PACKAGES), without=("__pycache__", "configs"))
    return hashlib.sha256("\n".join([ours, *sorted(installed)]).encode()).hexdigest()


def _file(name: str) -> Path | None:
    """Where values are kept; None where the system names no place. Every installation has files of its own."""
    folder = find_folder()
    installation = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    return folder / f"index-{installation}-{name}.json" if folder else None


def find_folder() -> Path | None:
    """The folder of the index; None where the system names no place."""
    folder = _cache()
    return folder / "fedaudit" if folder else None


def _cache() -> Path | None:
    """The user's folder for what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given)
    try:
        home = Path.home()
    except RuntimeError:  # nobody's home is known
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    return home / ".cache"


def recall_all(name: str) -> dict[str, Any]:
    """All that is kept under a name."""
    try:
        file = _file(name)
        kept = parse_json(file.read_bytes()) if file else {}
        values = kept["values"] if kept and kept["state"] == _state() else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _is_card(entry: Entry) -> bool:
    """Whether all fields hold text, as in what was kept by us."""
    more = entry.more.items() if isinstance(entry.more, dict) else [(0, 0)]
    texts = (entry.name, entry.title, entry.source, entry.text, *(t for pair in more for t in pair))
    return all(isinstance(t, str) for t in texts)
