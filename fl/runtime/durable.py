"""The one place that writes files: whole ones, logs, folders, a lock. A test forbids it everywhere else.

A file is written aside, flushed to the disk and renamed, and then its folder is flushed, so that what lies there
is the old file or the whole new one, also after a power cut. A log and the files that its lines name reach the
disk at `sync`, which a checkpoint calls before it is written itself: many files at once, because each flush alone
waits for the disk. Links are never written through, and hard ones neither: a file with another name may be
somebody else's. What the system refuses is a UserError that names the file. Network and overlay file systems may
lack locks, or the flush of a folder: that is a note, once in a process, and the work goes on.
"""

import errno
import fcntl
import json
import logging
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.special_files import refuse_hard_link

T = TypeVar("T")
FLUSHES_AT_ONCE = 16
BUFFERED = 1 << 20  # bytes of a log that wait for one write
_LOG = logging.getLogger("fedaudit")
_MINE = 0o600  # of files, 0o700 of folders: they hold people's data, which only the user reads
_NEVER = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # through a link, or waiting at a pipe
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NEVER
_ASIDE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NEVER
# Answers of file systems that have no such operation; the last two too, of a handle that was just opened
_LACKING = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.EBADF}
_WITHOUT = {
    "lock": "lock files: start one command at a time in a folder",
    "flush": "flush a folder: after a power cut the last files in it may be missing",
}
_noted = set[str]()


def _step(what: str, path: Path, act: Callable[[], T]) -> T:
    """One thing done to the disk; tests make any of them fail."""
    try:
        return act()
    except OSError as error:
        raise UserError(
            f"cannot {what} {path}: {error.strerror or error}",
            hint="make room or repair the disk, check who may write there; the same command continues",
        ) from error


def write(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Replace a file, whole or not at all, even if the machine stops meanwhile. Folders are made.

    Of pieces of data each is asked for when those before it are written.
    """
    folder(path.parent)
    aside = _write_aside(path, data)
    _flush_path(aside)
    _step("rename", path, lambda: os.replace(aside, path))
    _flush_path(path.parent)


def folder(path: Path) -> None:
    """Make a folder, with those above it, so that it is still there after a power cut."""
    if path.is_dir():
        return
    folder(path.parent)
    _step("make", path, lambda: path.mkdir(0o700, exist_ok=True))
    _flush_path(path.parent)


def remove(path: Path) -> None:
    """Remove a file where there is one."""
    if path.is_symlink() or path.exists():
        _step("remove", path, lambda: path.unlink(missing_ok=True))
        _flush_path(path.parent)


def overwrite(path: Path) -> None:
    """Remove a file after its bytes were replaced by zeros on the disk."""
    handle = _open_own(path, os.O_WRONLY | _NEVER)
    try:
        left = os.fstat(handle).st_size
        while left > 0:
            left -= _step("write", path, partial(os.write, handle, bytes(min(left, BUFFERED))))
        _step("flush", path, lambda: _flush(handle, path))
    finally:
        os.close(handle)
    remove(path)


def remove_folder(path: Path) -> None:
    """Remove a folder with all below it, where there is one; what a link leads to stays."""
    if path.is_symlink() or path.is_file():
        remove(path)
    elif path.exists():
        _step("remove", path, lambda: shutil.rmtree(path))
        _flush_path(path.parent)


def remove_empty(path: Path) -> None:
    """Remove a folder that holds nothing; one that holds something stays."""
    if path.is_dir() and not any(path.iterdir()):
        _step("remove", path, path.rmdir)


def move_to(path: Path, to: Path) -> None:
    """Rename a file or folder, or copy it and remove it where the system renames nothing from folder to folder.

    In a box no Linux before 5.19 does.
    """
    if not _step("rename", to, lambda: _rename(path, to)):
        _flush_all([*_copy(path, to)])
        remove_folder(path)
    _flush_path(to.parent)


def _rename(path: Path, to: Path) -> bool:
    """False where both may be written and the system makes it no rename."""
    try:
        os.rename(path, to)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _copy(path: Path, to: Path) -> Iterator[Path]:
    """Yields each file and folder that is made and not yet flushed."""
    if not path.is_dir():
        aside = _write_aside(to, _step("read", path, path.read_bytes))
        _step("rename", to, lambda: os.replace(aside, to))
        yield to
        return
    folder(to)
    for below in path.iterdir():
        yield from _copy(below, to / below.name)
    yield to


@contextmanager
def keep_if_filled(path: Path) -> Iterator[None]:
    """Make a folder, with those above it; those of them that hold nothing in the end go again."""
    made = [at for at in (path, *path.absolute().parents) if not at.exists()]
    folder(path)
    try:
        yield
    finally:
        for at in made:
            with suppress(UserError):  # in a box whoever started it removes the folder
                remove_empty(at)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Nobody else holds the lock file `path` meanwhile; it goes with the process that holds it.

    Raises UserError where another process does.
    """
    handle = _step("lock", path, lambda: os.open(path, os.O_RDWR | os.O_CREAT | _NEVER, _MINE))
    try:
        _step("lock", path, lambda: _hold(handle, path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


@contextmanager
def take_turn(at: Path) -> Iterator[None]:
    """Wait until no other process is in here for this folder, which is made where it is missing."""
    folder(at)
    handle = _step("open", at, lambda: os.open(at, os.O_RDONLY))
    try:
        _step("lock", at, lambda: _hold(handle, at, fcntl.LOCK_EX))
        yield
    finally:
        os.close(handle)


class Log:
    """An append-only JSON-lines file that can be cut back to where a checkpoint left it."""

    def __init__(self, path: Path) -> None:
        folder(path.parent)
        self.path = path
        self._handle = _open_own(path, _APPEND)
        self._lines = bytearray()
        self._unsynced = {path, path.parent}

    def add(self, record: Mapping[str, Any] | str) -> None:
        line = record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))
        self._lines += line.encode() + b"\n"
        self._unsynced.add(self.path)
        if len(self._lines) > BUFFERED:
            self.offset()

    def attach(self, path: Path, data: bytes) -> None:
        """Write a file that a line will name: whole at once, on the disk at `sync`."""
        folder(path.parent)
        aside = _write_aside(path, data)
        _step("rename", path, lambda: os.replace(aside, path))
        self._unsynced |= {path, path.parent}

    def offset(self) -> int:
        """Bytes, with all that was added."""
        _write_all(self._handle, self.path, bytes(self._lines))
        self._lines.clear()
        return os.fstat(self._handle).st_size

    def cut(self, offset: int) -> None:
        """Forget what was written after `offset`: an unfinished round."""
        self._lines.clear()
        _step("cut", self.path, lambda: os.ftruncate(self._handle, offset))
        self._unsynced.add(self.path)

    def close(self) -> None:
        """What was added is in the file, though not yet flushed to the disk."""
        self.offset()
        os.close(self._handle)


def sync(logs: Iterable[Log]) -> None:
    """All that these logs hold, and the files attached to them, to the disk."""
    logs = list(logs)
    for log in logs:
        log.offset()
    _flush_all({path for log in logs for path in log._unsynced})
    for log in logs:
        log._unsynced.clear()


def _flush_all(paths: Collection[Path]) -> None:
    waiting = sorted(paths)
    if len(waiting) == 1:
        _flush_path(waiting[0])
    elif waiting:
        with ThreadPoolExecutor(FLUSHES_AT_ONCE) as pool:
            list(pool.map(_flush_path, waiting))


def _write_aside(path: Path, data: bytes | Iterable[bytes | memoryview]) -> Path:
    """The data in a new file beside `path`, not yet flushed; never through a link that lies there."""
    aside = path.with_name(f".{path.name}.partial")
    if aside.is_symlink() or aside.exists():
        _step("remove", aside, lambda: aside.unlink(missing_ok=True))
    handle = _step("open", aside, lambda: os.open(aside, _ASIDE, _MINE))
    try:
        for piece in [data] if isinstance(data, bytes) else data:
            _write_all(handle, aside, piece)
    finally:
        os.close(handle)
    return aside


def _write_all(handle: int, path: Path, data: bytes | memoryview) -> None:
    """Every byte: the system may take some of them and refuse the rest."""
    left = memoryview(data)
    while left:
        left = left[_step("write", path, partial(os.write, handle, left)) :]


def _flush_path(path: Path) -> None:
    """A file's bytes, or a folder's names, to the disk."""
    _step("flush", path, lambda: _sync_file(path))


def _sync_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        if not path.is_dir():
            raise
        _note("flush", path)  # a folder that may be written to and not be listed
        return
    try:
        _flush(handle, path)
    finally:
        os.close(handle)


def _flush(handle: int, path: Path) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        _note("flush", path)


def _hold(handle: int, path: Path, how: int) -> None:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError as error:
        raise UserError(
            f"another fedaudit is working in {path.parent}", hint="wait for it, or choose another --out"
        ) from error
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        _note("lock", path)


def _note(what: str, path: Path) -> None:
    """Say once what a file system cannot do."""
    if what not in _noted:
        _noted.add(what)
        _LOG.warning("note: the file system of %r cannot %s", str(path), _WITHOUT[what])


def _open_own(path: Path, flags: int) -> int:
    """Open a file to change it where it lies. Raises UserError where a change would reach another one."""
    handle = _step("open", path, lambda: os.open(path, flags, _MINE))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(
                f"cannot open {path}: it is not a file", hint="remove it; a file is made in its place"
            )
        refuse_hard_link(path, found)
    except UserError:
        os.close(handle)
        raise
    return handle
