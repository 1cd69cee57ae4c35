"""The index of cards: what `fedaudit list` prints, kept in the user's cache folder so that nothing is imported.

A list is made by importing plugins, torch among them, and kept with the time and size of every file of ours; it
is made anew when one of them changes. Without the index, or without a place to keep it, all stays the same but
the time.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

ROOT = Path(__file__).parents[2]  # the folder of the package fedaudit
PACKAGES = ("fl", "attacks", "audit", "reports")
BROKEN = "cannot be loaded: "


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One plugin as `fedaudit list` prints it."""

    name: str
    title: str
    source: str  # the paper; for a section its place in the report
    text: str  # one line
    more: dict[str, str] = dataclasses.field(default_factory=dict)  # further columns


def entries(kind: str, make: Callable[[], list[Entry]]) -> list[Entry]:
    """The cards of a kind: as kept, or from `make`, which imports the plugins."""
    file, state = _file(kind), _state()
    found = _read(file, state) if file else None
    if found is None:
        found = make()
        if file and not any(e.text.startswith(BROKEN) for e in found):  # it may load once something is installed
            _write(file, {"state": state, "entries": [dataclasses.asdict(e) for e in found]})
    return found


def _state() -> str:
    """Changes with the time or size of any file of ours: a card may read what another file defines."""
    seen = hashlib.sha256()
    for package in PACKAGES:
        for folder, folders, names in os.walk(ROOT / package):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            for name in sorted(n for n in names if n.endswith(".py")):
                stat = os.stat(os.path.join(folder, name))
                seen.update(f"{folder}/{name} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    return seen.hexdigest()


def _file(kind: str) -> Path | None:
    """Where the cards of a kind are kept; None where the system names no place. One file an installation."""
    folder = _cache()
    installation = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    return folder / "fedaudit" / f"cards-{installation}-{kind}.json" if folder else None


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


def _read(file: Path, state: str) -> list[Entry] | None:
    """What is kept; None where there is nothing, or it is of other files, or damaged."""
    try:
        kept = json.loads(file.read_bytes())
        if kept["state"] != state:
            return None
        found = [Entry(**fields) for fields in kept["entries"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = [t for e in found for t in (e.name, e.title, e.source, e.text)]
    more = [t for e in found if isinstance(e.more, dict) for pair in e.more.items() for t in pair]
    good = all(isinstance(e.more, dict) for e in found) and all(isinstance(t, str) for t in texts + more)
    return found if good else None


def _write(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all; a folder that cannot be written is no error."""
    with contextlib.suppress(UserError):
        durable.write(file, json.dumps(content).encode())
