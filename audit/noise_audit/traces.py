"""What code of a team's own opens while a federation is played: what it keeps there outlives a play.

A file, a connection, another program or the environment can hold what one play leaves for the next one, and what
the run left for all of them. Nobody can put that back to where it was, so that it is only noted.
"""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

HEARD = {"socket.connect": "a connection", "subprocess.Popen": "another program", "os.putenv": "the environment"}
CODE = (".py", ".pyc", ".so", ".pyd")
OURS = __name__.partition(".")[0]

_heard: set[str] | None = None
_tops: frozenset[str] = frozenset()


@contextmanager
def noting_traces(names: Collection[str]) -> Iterator[set[str]]:
    """What code of these names ("module:Class") opens inside, in words; in whichever thread it does."""
    global _heard, _tops
    _install()
    _heard, _tops = set(), frozenset(n.partition(":")[0].partition(".")[0] for n in names)
    try:
        yield _heard
    finally:
        _heard = None


def _install() -> None:
    """Python keeps such a hook until it ends."""
    if not hasattr(sys, "_fedaudit_traces"):
        sys._fedaudit_traces = True  # type: ignore[attr-defined]
        sys.addaudithook(_hear)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _heard is None or not (event == "open" or event in HEARD):
        return
    if event == "open" and not (
        isinstance(args[0], str | bytes | os.PathLike) and not _is_code(os.fsdecode(args[0]))
    ):
        return
    if _is_asked_by_team():
        _heard.add(HEARD.get(event) or f"the file {os.path.basename(os.fsdecode(args[0]))!r}")


def _is_code(path: str) -> bool:
    return path.endswith(CODE) or "__pycache__" in path


def _is_asked_by_team() -> bool:
    """Whether the nearest caller that is not a library's is the team's code."""
    frame = sys._getframe(2)
    while frame is not None:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top in _tops:
            return True
        if top == OURS:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False
