"""Writing: in one module, never through links, and what is written is on the disk before what says so."""

import ast
import errno
import fcntl
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedaudit.fl.recording.checkpoint import Checkpoints, Saved
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.durable import Log, sync
from fedaudit.fl.runtime.errors import UserError
from tests.test_house import MODULES

# Calls that write, wherever they are, and where one is allowed with the reason
WRITES = {
    *("write_text", "write_bytes", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "touch", "symlink_to"),
    *(
        "rename",
        "ftruncate",
        "truncate",
        "copyfile",
        "copytree",
        "move",
        "save_file",
        "savez",
        "tofile",
        "savetxt",
    ),
    *("NamedTemporaryFile", "mkstemp", "fdopen", "hardlink_to", "write_video", "dump", "fsync", "savetxt"),
}
ALLOWED = {
    "fedaudit.fl.runtime.durable": "the one place",
    "fedaudit.audit.importing.recorders.plain": "it runs where nothing of ours is installed",
    "fedaudit.audit.controls.on_disk": "planted messages in a temporary folder, for as long as they are read",
    "fedaudit.audit.cli.box": "it maps its user in /proc and opens what it admits, for nobody to read or write",
    "fedaudit.audit.cli.confine": "it makes the folders that its child may write to",
    "fedaudit.fl.runtime.side_by_side": "a byte in a pipe for each free core, and no file",
    "fedaudit.reports.renderers.pdf": "typst reads its input from a temporary folder of its own",
}


# Text that calls which write have in them; files without any need not be parsed
OF_OS = ("replace", "open", "remove", "link", "symlink", "write", "mkfifo")
MAY_WRITE = re.compile(rf"\b(?:open|save|{'|'.join(WRITES)}|os\.(?:{'|'.join(OF_OS)}))\s*\(")


def writing(tree: ast.AST) -> Iterator[int]:
    """Lines that write or open for writing."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        module = getattr(getattr(node.func, "value", None), "id", "")
        modes = [a for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
        opens = named == "open" and any(set(str(a.value)) & set("wax+") and len(str(a.value)) < 4 for a in modes)
        moves = module == "os" and named in OF_OS
        saves = module in ("np", "numpy", "torch", "pickle", "json", "yaml") and named in ("save", "dump")
        dumps = named == "dump" and module not in ("json", "pickle", "yaml")  # our own function of that name
        if opens or moves or saves or (named in WRITES and not dumps):
            yield node.lineno


def test_only_one_module_writes_files() -> None:
    texts = {m: path.read_text() for m, path in MODULES.items()}
    found = {m: list(writing(ast.parse(text))) for m, text in texts.items() if MAY_WRITE.search(text)}
    assert {m: lines for m, lines in found.items() if lines and m not in ALLOWED} == {}
    assert all(found[m] for m in ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        "open(p, 'w')",
        "open(p, mode='ab')",
        "p.open('x')",
        "p.write_text(t)",
        "os.replace(a, b)",
        "os.open(p, flags)",
        "json.dump(v, f)",
        "np.save(p, x)",
        "save_file(t, p)",
        "shutil.rmtree(p)",
        "p.mkdir()",
    ],
)
def test_every_way_to_write_is_seen(line: str) -> None:
    assert MAY_WRITE.search(line) and list(writing(ast.parse(line))) == [1]


def test_reading_is_not_taken_for_writing() -> None:
    lines = (
        "open(p, 'rb')",
        "open(p)",
        "p.read_bytes()",
        "s.replace('a', 'w')",
        "Image.open(p)",
        "RunDir.open(p)",
    )
    assert not [line for line in lines if list(writing(ast.parse(line)))]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done to the disk, in order."""
    done, step = list[tuple[str, str]](), durable._step

    def noted(what: str, path: Path, act: object) -> object:
        done.append((what, path.name))
        return step(what, path, act)  # type: ignore[arg-type]

    monkeypatch.setattr(durable, "_step", noted)
    return done


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    durable.write(tmp_path / "a", b"x")
    folder = tmp_path.name
    aside = ".a.partial"
    assert steps == [("open", aside), ("write", aside), ("flush", aside), ("rename", "a"), ("flush", folder)]


def test_artifacts_and_logs_are_on_the_disk_before_the_checkpoint(
    tmp_path: Path, steps: list[tuple[str, str]]
) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.attach(tmp_path / "artifacts" / "one", b"1")
    log.add({"message": "one"})
    checkpoints = Checkpoints(tmp_path / "checkpoint", {"log": log})
    checkpoints.save(Saved(1, {}, {}))
    named = steps.index(("rename", "state.safetensors"))
    flushed = {name for what, name in steps[:named] if what == "flush"}
    assert {"one", "artifacts", "log.jsonl", tmp_path.name} <= flushed
    steps.clear()
    checkpoints.save(Saved(2, {}, {}))
    assert ("flush", "one") not in steps  # once is enough


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "log.jsonl").symlink_to(mine)
    with pytest.raises(UserError, match=r"cannot open .*log\.jsonl"):
        Log(tmp_path / "log.jsonl")
    (tmp_path / ".a.partial").symlink_to(mine)
    (tmp_path / "a").symlink_to(mine)
    durable.write(tmp_path / "a", b"new")
    (tmp_path / ".lock").symlink_to(mine)
    with pytest.raises(UserError, match=r"cannot lock"), durable.lock(tmp_path / ".lock"):
        pass
    assert mine.read_text() == "mine" and not (tmp_path / "a").is_symlink()


def test_a_folder_moves_whole_to_where_the_system_renames_nothing(tmp_path: Path) -> None:
    """To another disk here; in a box of an old kernel to any other folder."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("there is one disk")
        (tmp_path / "run" / "artifacts").mkdir(parents=True)
        (tmp_path / "run" / "artifacts" / "one").write_bytes(b"1")
        (tmp_path / "run" / "config.yaml").write_bytes(b"c")
        (Path(other) / "config.yaml").write_bytes(b"before")
        durable.move_to(tmp_path / "run" / "artifacts", Path(other) / "artifacts")
        durable.move_to(tmp_path / "run" / "config.yaml", Path(other) / "config.yaml")
        found = {str(p.relative_to(other)): p.read_bytes() for p in Path(other).rglob("*") if p.is_file()}
        assert found == {"artifacts/one": b"1", "config.yaml": b"c"} and list((tmp_path / "run").iterdir()) == []


def test_a_pipe_or_a_device_in_place_of_a_log_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(UserError, match="cannot open"):
        Log(tmp_path / "log.jsonl")
    with pytest.raises(UserError, match="it is not a file"):
        Log(Path("/dev/null"))


def test_a_log_is_cut_and_continued(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.add({"a": 1})
    kept = log.offset()
    log.add({"b": 2})
    sync([log])
    log.add("lost")
    log.cut(kept)
    log.add({"c": 3})
    log.close()
    assert (tmp_path / "log.jsonl").read_text() == '{"a":1}\n{"c":3}\n'


def test_nothing_is_written_through_a_hard_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious\n")
    for name in ("log.jsonl", "a", "shredded", ".a.partial"):
        os.link(mine, tmp_path / name)
    with pytest.raises(UserError, match=r"log\.jsonl is a hard link: the same file has 5 names.*\n.*cp -r"):
        Log(tmp_path / "log.jsonl")
    with pytest.raises(UserError, match="shredded is a hard link"):
        durable.overwrite(tmp_path / "shredded")
    durable.write(tmp_path / "a", b"new")
    assert mine.read_bytes() == b"precious\n" and (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "shredded").exists()


LACKING = ["ENOSYS", "EOPNOTSUPP", "ENOLCK", "EINVAL", "EBADF"]


def refusing(name: str) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    return refuse


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What is printed on the terminal since it was asked last."""
    monkeypatch.setattr(durable, "_noted", set())
    monkeypatch.setattr(logging.root, "handlers", [])  # those of libraries that other tests load
    return lambda: capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("name", LACKING)
def test_a_file_system_without_locks_is_a_note_and_no_stop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(name))
    for _ in range(2):
        with durable.lock(tmp_path / ".lock"), durable.take_turn(tmp_path / "turns"):
            pass
    assert notes() == [
        f"note: the file system of '{tmp_path}/.lock' cannot lock files: start one command at a time in a folder"
    ]


@pytest.mark.parametrize("name", LACKING)
def test_a_folder_that_cannot_be_flushed_is_a_note_and_no_stop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(os, "fsync", refusing(name))
    durable.write(tmp_path / "new" / "a", b"x")
    log = Log(tmp_path / "log.jsonl")
    log.attach(tmp_path / "b", b"y")
    log.add({"message": "b"})
    sync([log])
    durable.overwrite(tmp_path / "b")
    assert (tmp_path / "new" / "a").read_bytes() == b"x"
    (note,) = notes()
    assert note.startswith("note: ") and "cannot flush a folder: after a power cut" in note


def test_a_folder_that_may_be_written_and_not_listed_is_a_note_and_a_file_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: Callable[[], list[str]]
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(os, "open", refusing("EACCES"))  # whoever runs the tests may be root, who may all
    durable._flush_path(tmp_path)
    assert len(notes()) == 1
    with pytest.raises(UserError, match=r"cannot flush .*a: Permission denied"):
        durable._flush_path(tmp_path / "a")


@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EDQUOT", "ESTALE"])
def test_a_disk_that_fails_is_a_stop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(name))
    monkeypatch.setattr(os, "fsync", refusing(name))
    with pytest.raises(UserError, match="cannot lock"), durable.lock(tmp_path / ".lock"):
        pass
    with pytest.raises(UserError, match="cannot lock"), durable.take_turn(tmp_path):
        pass
    with pytest.raises(UserError, match="cannot flush"):
        durable.write(tmp_path / "a", b"x")
    assert not notes()


def test_only_a_lock_that_somebody_holds_says_so(tmp_path: Path) -> None:
    path, busy = tmp_path / ".lock", pytest.raises(UserError, match="another fedaudit is working in")
    with durable.lock(path), busy, durable.lock(path):
        pass
    with durable.lock(path):
        pass
