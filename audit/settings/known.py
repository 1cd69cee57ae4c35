"""What this machine has met before with this code, so that a command can tell whether torch will be needed.

Nothing follows from these notes but whether a command tries to go without torch first.
"""

import hashlib
from pathlib import Path

from fedaudit.audit.settings import index

FILES = ("ledger.jsonl", "artifacts/manifest.jsonl", "config.yaml")  # of a run folder


def note(path: Path) -> None:
    """Note that a config was planned, or the ledger of a run folder accounted for."""
    if digest := _digest(path):
        index.keep("known", digest, True)


def is_known(path: Path) -> bool:
    """Whether a config, or a run folder, with these bytes was noted."""
    digest = _digest(path)
    return bool(digest) and index.recall("known", digest) is True


def _digest(path: Path) -> str:
    """Of a file, or of the files of a run folder; empty where one cannot be read."""
    try:
        files = [path / name for name in FILES] if path.is_dir() else [path]
        return hashlib.sha256(b"\0".join(hashlib.sha256(f.read_bytes()).digest() for f in files)).hexdigest()
    except OSError:
        return ""
