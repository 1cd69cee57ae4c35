"""Files that are more than a file in a folder, refused before they are read or changed.

Who opens a pipe, a socket or a device waits for ever. A hard link is another name of what may be anybody's file.
"""

import os
from contextlib import suppress
from pathlib import Path

from fedaudit.fl.runtime.errors import UserError


def refuse_special(path: Path, *, below: bool = True) -> None:
    """Raise UserError for a path that leads to a pipe, a socket or a device.

    Args:
        path: A file or a folder, or nothing.
        below: Whether all that lies in a folder counts as well; links are followed.
    """
    waiting, seen = [os.fspath(path)], set[tuple[int, int]]()
    while waiting:
        at = waiting.pop()
        with suppress(OSError, ValueError):  # whoever opens it says why that fails
            if _is_special(at):
                raise UserError(f"{at} is a pipe, a socket or a device", hint="name a file or a folder")
            if not below or not os.path.isdir(at):
                continue
            found = os.stat(at)
            if (found.st_dev, found.st_ino) in seen:  # a link that leads back
                continue
            seen.add((found.st_dev, found.st_ino))
            with os.scandir(at) as entries:  # of a plain file the folder itself says that it is one
                waiting += [e.path for e in entries if e.is_symlink() or not e.is_file(follow_symlinks=False)]


def refuse_hard_link(path: str | Path, found: os.stat_result) -> None:
    """Raise UserError for a file that has another name too, perhaps elsewhere: both would change."""
    if found.st_nlink > 1:
        raise UserError(
            f"{path} is a hard link: the same file has {found.st_nlink} names, and may lie elsewhere too",
            hint="copy the folder, which makes files of its own: cp -r FOLDER COPY, and name the copy",
        )


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
