"""A fault at every write, rename and flush of a run: it continues to the same bytes, or is refused by name.

`Disk` stands between the project and the disk. It stops the process at a chosen step, or lets the system refuse
that step and all later ones. After a power cut it takes back what was not flushed: bytes and names.
"""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import PHASES
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config, load
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from tests.audit.phases.left import left
from tests.audit.tiny import TEXT

MORE = """
workers: 0
report: [json]
record: all
attacks: [example_numbers]
noise_audit: false
"""
KINDS = ("killed", "power cut", "ENOSPC", "EIO")


class Stop(BaseException):
    """The process, or the machine, is no more."""


class Disk:
    """Steps are counted; the step number `at` is the fault."""

    def __init__(self, kind: str = "", at: int = -1) -> None:
        self.kind, self.at, self.steps, self.broken = kind, at, 0, False
        self.paths: list[Path] = []
        self._flushed: dict[Path, int] = {}  # bytes of a file that are on the disk
        self._names: dict[Path, list[Callable[[], None]]] = {}  # folder -> how to take back what it does not hold

    def step(self, what: str, path: Path, act: Callable[[], Any]) -> Any:
        self.paths.append(path)
        if self.broken and self.kind in ("killed", "power cut"):
            raise Stop
        self.broken = self.broken or self.steps == self.at
        self.steps += 1
        if self.broken:
            return self._fail(what, path, act)
        return self._watched(what, path, act)

    def _fail(self, what: str, path: Path, act: Callable[[], Any]) -> Any:
        if self.kind in ("killed", "power cut"):
            raise Stop
        code = getattr(errno, self.kind)
        if self.kind == "ENOSPC" and what not in ("write", "make", "open"):
            return self._watched(what, path, act)  # a full disk still renames, removes and cuts
        if what == "write" and isinstance(act, partial):  # half of it was taken
            os.write(act.args[0], act.args[1][: len(act.args[1]) // 2])
        raise UserError(f"cannot {what} {path}: {os.strerror(code)}", hint="make room")

    def _watched(self, what: str, path: Path, act: Callable[[], Any]) -> Any:
        if what == "flush":  # not really: a test waits for no disk
            self._flushed[path] = path.stat().st_size if path.is_file() else 0
            self._names.pop(path, None)
            return None
        undo = self._names.setdefault(path.parent, [])
        before = path.read_bytes() if path.is_file() else None
        if what == "rename":
            aside = path.with_name(f".{path.name}.partial")
            self._flushed[path] = self._flushed.pop(aside, 0)
        found = act()
        if what == "make":
            undo.append(lambda: shutil.rmtree(path, ignore_errors=True))
        elif what == "cut":
            self._flushed[path] = min(self._flushed.get(path, 1 << 60), path.stat().st_size)
        elif what in ("rename", "remove"):
            undo.append(partial(_put, path, before))
        elif before is None:
            undo.append(partial(_put, path, None))
        self._flushed.setdefault(path, 0 if before is None else len(before))
        return found

    def lose(self) -> None:
        """What a power cut takes: unflushed bytes, then unflushed names."""
        for path, size in self._flushed.items():
            if path.is_file() and path.stat().st_size > size and path.name != ".lock":
                os.truncate(path, size)
        for undo in self._names.values():
            for back in reversed(undo):
                back()


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    elif path.parent.is_dir():
        path.write_bytes(content)


@contextmanager
def installed(disk: Disk) -> Iterator[None]:
    real = durable._step
    durable._step = disk.step  # type: ignore[assignment]
    try:
        yield
    finally:
        durable._step = real


def run(folder: Path, config: Config) -> None:
    names = [p.name for p in PHASES]
    execute(RunDir.create(folder), config, names, lambda *_: None, skip_finished=True)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("config") / "c.yaml"
    path.write_text(TEXT.replace("clients: 4", "clients: 2") + MORE)
    return load(path)


@pytest.fixture(scope="module")
def whole(config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], int]:
    """What an undisturbed run leaves, and its number of steps."""
    folder, disk = tmp_path_factory.mktemp("whole") / "run", Disk()
    with installed(disk):
        run(folder, config)
    found = left(folder)
    assert {"audit.json", "ledger.jsonl", "checkpoint/state.safetensors", "report.json"} <= found.keys()
    return found, disk.steps


def disturbed(kind: str, at: int, folder: Path, config: Config, whole: dict[str, str]) -> None:
    disk = Disk(kind, at)
    with installed(disk):
        try:
            run(folder, config)
        except Stop:
            assert kind in ("killed", "power cut")
        except UserError as error:
            assert kind in ("ENOSPC", "EIO") and str(folder.parent) in str(error), error
        else:
            assert kind == "ENOSPC"  # its last steps take no room
    if kind == "power cut":
        disk.lose()
    with installed(Disk()):
        run(folder, config)
    assert left(folder) == whole, f"{kind} at step {at}: {disk.paths[-1]}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_run_continues_after_a_fault(
    kind: str, share: float, tmp_path: Path, config: Config, whole: tuple[dict[str, str], int]
) -> None:
    disturbed(kind, int(share * whole[1]) + KINDS.index(kind), tmp_path / "run", config, whole[0])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_continues_after_a_fault_at_every_step(
    kind: str, tmp_path: Path, config: Config, whole: tuple[dict[str, str], int]
) -> None:
    """Every step with `make faults`; else one in twenty, other ones for each kind."""
    stride = int(os.environ.get("FAULT_STRIDE", "20"))
    for at in range(KINDS.index(kind) * 5 % stride, whole[1], stride):
        disturbed(kind, at, tmp_path / "run", config, whole[0])
        shutil.rmtree(tmp_path / "run")


def test_a_loss_is_seen_where_a_flush_is_left_out(
    tmp_path: Path, config: Config, whole: tuple[dict[str, str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedaudit.fl.recording.checkpoint.sync", lambda logs: [log.offset() for log in logs])
    with pytest.raises(UserError, match="is shorter than its checkpoint says"):
        disturbed("power cut", whole[1] // 4, tmp_path / "run", config, whole[0])


def test_nothing_opens_a_file_of_a_run_for_writing_but_the_one_module(tmp_path: Path, config: Config) -> None:
    seen: list[str] = []
    active = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if active and event == "open" and str(tmp_path) in str(arguments[0]):
            flags = arguments[2]
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                frame = sys._getframe(1)
                seen.append(frame.f_globals["__name__"])

    sys.addaudithook(hook)
    run(tmp_path / "run", config)
    active.clear()
    assert set(seen) == {"fedaudit.fl.runtime.durable"}
