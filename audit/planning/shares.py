"""Shares of long work that rank 0 of a torchrun job asks all ranks for: attacks and cells.

Each rank takes the next piece when it is free, and writes what it makes into the run folder, which all machines
must see; a rank that sees another folder there, or none, takes none.
"""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedaudit.fl.runtime import torchrun
from fedaudit.fl.runtime.strict_json import parse_json

PATIENCE = 5.0  # seconds until what rank 0 wrote must be seen by all
Share = Callable[[torchrun.Call, Path, Any], None]


def share_out(workers: int | str, duty: str, folder: Path, what: Any) -> torchrun.Call | None:
    """Ask every rank to do its share of `what` (plain values); None where there is no other rank to ask.

    A run folder must lie at `folder` or above it.
    """
    if workers != "torchrun" or torchrun.count_ranks() < 2:
        return None
    path, digest = _identify(folder)
    return torchrun.call(duty, json.dumps({"folder": str(path), "is": digest, "what": what}))


def do_share(share: Share, call: torchrun.Call, text: str) -> None:
    """What rank 0 asked for, by `share`, where this rank sees the run folder of rank 0."""
    asked = parse_json(text)
    until = time.monotonic() + PATIENCE
    while not _sees(Path(asked["folder"]), asked["is"]):
        if time.monotonic() > until:
            return
        time.sleep(0.2)
    share(call, Path(asked["folder"]), asked["what"])


def _identify(folder: Path) -> tuple[Path, str]:
    """The run folder at or above a path, and what its record of phases is."""
    found = next(p for p in (folder, *folder.parents) if (p / "phases.json").is_file()).resolve()
    return found, hashlib.sha256((found / "phases.json").read_bytes()).hexdigest()


def _sees(folder: Path, digest: str) -> bool:
    try:
        return _identify(folder) == (folder, digest)
    except (OSError, StopIteration):
        return False
