"""Digests of values, of files and of the code that runs.

All are SHA-256, in hexadecimal. Of a JSON file what is compared between two runs is its content without times,
and a digest here is of that: `TIMES` lists the keys that are left out.
"""

import fnmatch
import hashlib
import inspect
import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.index import PACKAGES, ROOT
from fedaudit.audit.settings.spec import NamedPlugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

# Keys that differ between two runs of one config: times, and the machine. "*" is every entry of a list or object.
TIMES = {
    "evidence/[0-9]*.json": ("seconds",),
    "environment.json": ("hardware",),
    "audit.json": (
        "created",
        "findings.*.seconds",
        "reproduction.started",
        "reproduction.seconds",
        "reproduction.hardware",
        "reproduction.threads",
        "reproduction.commit",
        "policy.fixed",
        "policy.first_evidence",
    ),
}


def of_value(value: Any) -> str:
    """Of a plain value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def of_file(path: Path, name: str) -> str:
    """Of a file's bytes; of a JSON file that holds times, of the rest. `name` is relative to the run folder."""
    keys = next((keys for pattern, keys in TIMES.items() if fnmatch.fnmatch(name, pattern)), ())
    if not keys:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return of_value(timeless(parse_json(path.read_bytes()), keys))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}", hint="restore it, or run its phase again") from error


def timeless(value: Any, keys: Iterable[str]) -> Any:
    """A plain value without these dotted keys."""
    for key in keys:
        value = _drop_path(value, key.split("."))
    return value


def _drop_path(value: Any, path: list[str]) -> Any:
    head, *rest = path
    if head == "*" and isinstance(value, list | Mapping):
        of = value.items() if isinstance(value, Mapping) else enumerate(value)
        kept = {k: _drop_path(v, rest) for k, v in of}
        return kept if isinstance(value, Mapping) else list(kept.values())
    if not isinstance(value, Mapping) or head not in value:
        return value
    kept = {k: v for k, v in value.items() if k != head}
    return {**kept, head: _drop_path(value[head], rest)} if rest else kept


def named_plugins(plugins: Iterable[NamedPlugin]) -> dict[str, str]:
    """Source of plugins that a config names: "methods fedavg" -> digest."""
    found = {}
    for kind, _, spec in plugins:
        file = inspect.getsourcefile(catalog.load(kind, spec.name))
        found[f"{kind} {spec.name}"] = of_file(Path(file), "") if file else "no file"
    return dict(sorted(found.items()))


@cache
def packages() -> dict[str, str]:
    """The source of each of our packages, as this process found it."""
    found = {}
    for package in PACKAGES:
        seen = hashlib.sha256()
        for path in sorted((ROOT / package).rglob("*.py")):
            seen.update(f"{path.relative_to(ROOT).as_posix()} {of_file(path, '')}\n".encode())
        found[package] = seen.hexdigest()
    return found


@cache
def commit() -> str:
    """The commit of the checkout that runs, where it is one; `packages` tells whether files differ from it."""
    if not (ROOT.parent / ".git").exists():
        return "not a checkout"
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
