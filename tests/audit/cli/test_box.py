"""The box around commands that open what others wrote, probed from inside by a process and by its children."""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli import box
from fedaudit.audit.cli.access import derive_access
from fedaudit.audit.cli.app import READERS
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load
from tests.audit.cli.test_cli import list_commands
from tests.audit.importing.theirs import FLOWER, written
from tests.ordinary_user import OrdinaryUser, ordinary_user

PROBES = """
import ctypes, json, os, resource, socket, struct, subprocess, sys, time
from pathlib import Path
def tries(folder, outside, parent):
    yield "tcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    yield "tcp6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    yield "udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    yield "raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW)
    yield "unix", lambda: socket.socket(socket.AF_UNIX)
    yield "netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    yield "vsock", lambda: socket.socket(socket.AF_VSOCK)
    yield "dns", lambda: socket.getaddrinfo("localhost.example.org", 80)
    yield "ring", lambda: call(425, 1, ctypes.create_string_buffer(256))
    yield "read outside", lambda: (outside / "mine.txt").read_text()
    yield "list outside", lambda: os.listdir(outside)
    yield "accounts", lambda: Path("/etc/passwd").read_text()
    yield "home", lambda: os.listdir(Path.home())
    yield "write outside", lambda: (outside / "new").write_text("x")
    yield "write temporary", lambda: Path("/tmp/fedaudit-probe").write_text("x")
    yield "overwrite outside", lambda: open(outside / "mine.txt", "r+")
    yield "mode outside", lambda: os.chmod(outside / "mine.txt", 0o777)
    yield "owner outside", lambda: os.chown(outside / "mine.txt", os.getuid(), os.getgid())
    yield "time outside", lambda: os.utime(outside / "mine.txt", (1, 1))
    yield "attribute outside", lambda: os.setxattr(outside / "mine.txt", "user.fedaudit", b"1")
    yield "mode of what is read", lambda: os.chmod(folder / "a.txt", 0o777)
    yield "limits of the parent", lambda: resource.prlimit(parent, resource.RLIMIT_CORE)
    yield "shared memory", lambda: call(SHARED[0], 0, 4096, 0o1600)
    yield "keys", lambda: call(SHARED[1], 6, -3, 0, 0)
    yield "namespaces", lambda: call(SHARED[2], 0x10000000)
    yield "remove outside", lambda: (outside / "mine.txt").unlink()
    yield "cut outside", lambda: os.truncate(outside / "mine.txt", 0)
    yield "cut what is read", lambda: os.truncate(folder / "a.txt", 0)
    yield "cut by opening", lambda: os.open(folder / "a.txt", os.O_RDONLY | os.O_TRUNC)
    yield "cut by opening for nothing", lambda: os.open(folder / "a.txt", 3 | os.O_TRUNC)
    yield "cut by the second call", lambda: call(437, -100, os.fsencode(folder / "a.txt"), HOW, 24)
    yield "make device", lambda: os.mknod(outside / "device", 0o060600, os.makedev(7, 0))
    yield "link out", lambda: os.link(outside / "mine.txt", folder / "hard")
    yield "through a link", lambda: (folder / "leads_out").read_text()
    yield "parent's environment", lambda: Path(f"/proc/{parent}/environ").read_bytes()
    yield "parent's memory", lambda: open(f"/proc/{parent}/mem", "rb")
    yield "signal the parent", lambda: os.kill(parent, 0)
SHARED = (29, 250, 272) if os.uname().machine == "x86_64" else (194, 219, 97)  # shmget, keyctl, unshare
HOW = struct.pack("<3Q", os.O_TRUNC, 0, 0)  # of openat2
def call(number, *arguments):
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def done(folder, outside, parent):
    for name, act in tries(folder, outside, parent):
        try:
            act()
            yield name
        except OSError:
            pass
"""
# What Ubuntu 24.04 refuses an ordinary user's program that made a namespace of users, which the kernel allows
DENIED = """
import sys
import tempfile
def deny(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc/self/") and arguments[2] & 3:
        raise PermissionError(13, "Permission denied", str(arguments[0]))
sys.addaudithook(deny)
from fedaudit.audit.cli import box
"""
INSIDE = f"""{PROBES}
from fedaudit.audit.cli import box
reads, writes, outside = map(Path, sys.argv[1:])
began = time.perf_counter()
missing = box.enter(box.Access([reads], [writes]))
milliseconds = 1e3 * (time.perf_counter() - began)
mine = list(done(reads, outside, os.getppid()))
text = {PROBES!r} + "\\nprint(json.dumps(list(done(*map(Path, sys.argv[1:3]), int(sys.argv[3])))))"
command = [sys.executable, "-c", text, str(reads), str(outside), str(os.getppid())]
theirs = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
(writes / "a").write_text("x")
(writes / "a").rename(writes / "b")
admitted = (reads / "a.txt").read_text() + (writes / "b").read_text()
try:
    (reads / "a.txt").write_text("x")
    mine.append("write into what is read")
except OSError:
    pass
ends = socket.socketpair()
print(json.dumps([missing, milliseconds, mine, theirs, admitted]))
"""
CONFIG = """
federation: {dataset: digits, limit: [100, 20], clients: 3, model: logreg}
method: {name: fedavg, rounds: 1, local_epochs: 1}
attacks: [example_numbers]
workers: 0
report: [json]
"""
CLAIMS = Path(__file__).parents[3] / "configs" / "claims" / "class_counts.yaml"


def make_folders(place: Path) -> tuple[Path, Path, Path]:
    for name in ("reads", "writes", "outside"):
        (place / name).mkdir(parents=True)
    (place / "reads" / "a.txt").write_text("r")
    (place / "outside" / "mine.txt").write_text("mine")
    (place / "reads" / "leads_out").symlink_to(place / "outside" / "mine.txt")
    return place / "reads", place / "writes", place / "outside"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    return make_folders(tmp_path)


@pytest.fixture(scope="module")
def ordinary() -> Iterator[OrdinaryUser]:
    with ordinary_user() as user:
        yield user


def test_nothing_outside_the_box_is_reached(folders: tuple[Path, Path, Path]) -> None:
    done = subprocess.run([sys.executable, "-c", INSIDE, *map(str, folders)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, milliseconds, mine, theirs, admitted = json.loads(done.stdout)
    assert (missing, mine, theirs, admitted) == ([], [], [], "rx")
    assert milliseconds < 500
    assert (folders[2] / "mine.txt").read_text() == "mine" and len(list(folders[2].iterdir())) == 1


def test_the_probes_reach_everything_without_a_box(folders: tuple[Path, Path, Path]) -> None:
    """Those that this system offers at all: a container may have no names, devices or kinds of sockets."""
    text = PROBES + "\nprint(json.dumps(list(done(*map(Path, sys.argv[1:3]), os.getppid()))))"
    command = [sys.executable, "-c", text, str(folders[0]), str(folders[2])]
    reached = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    offered = {"tcp", "udp", "unix", "read outside", "write outside", "accounts", "mode outside", "time outside"}
    assert offered <= set(reached)


VERSIONS = (None, 1, 2, 4)  # of Landlock; None: as the kernel has it


def lower(version: int | None) -> str:
    return "" if version is None else f"box.ask_landlock_version = lambda libc: {version}\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_kernel_keeps_all_but_signals_and_says_so(
    version: int | None, folders: tuple[Path, Path, Path]
) -> None:
    command = [sys.executable, "-c", DENIED + lower(version) + INSIDE, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, _, mine, theirs, admitted = json.loads(done.stdout)
    reached = ["signal the parent"] if version else []
    assert (missing, mine, theirs, admitted) == ([box.SIGNALS] if version else [], reached, reached, "rx")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ordinary_user_is_boxed_as_an_administrator_is(version: int | None, ordinary: OrdinaryUser) -> None:
    """Although the system refuses the user a namespace."""
    folders = make_folders(ordinary.folder / f"box-{version}")
    ordinary.give(ordinary.folder / f"box-{version}")
    done = ordinary.run(["-c", DENIED + lower(version) + INSIDE, *map(str, folders)])
    assert done.returncode == 0, done.stderr
    missing, _, mine, theirs, admitted = json.loads(done.stdout)
    reached = ["signal the parent"] if version and os.geteuid() else []  # the administrator's is out of reach
    assert (missing, mine, theirs, admitted) == ([box.SIGNALS] if version else [], reached, reached, "rx")


# A program that a kernel or a container refuses some calls: (number, first argument or None, error)
REFUSED = """
import ctypes, os, struct, sys
def refuse(calls):
    rows = [(0x20, 0, 0, 0)]  # the number
    for number, first, error in calls:
        if first is None:
            rows += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error)]
        else:
            rows += [(0x15, 0, 4, number), (0x20, 0, 0, 16), (0x15, 0, 1, first), (0x06, 0, 0, 0x50000 | error)]
            rows += [(0x20, 0, 0, 0)]
    rows += [(0x06, 0, 0, 0x7FFF0000)]
    raw = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, struct.pack("@HP", len(rows), ctypes.addressof(raw)), 0, 0) == 0
refuse(eval(sys.argv[1]))
from pathlib import Path
from fedaudit.audit.cli.box import Access
from fedaudit.audit.cli.confine import choose_limits, confine
confine(Access([Path(sys.argv[2])]), choose_limits(works=True))
print(Path(sys.argv[2], "a.txt").read_text())
sys.exit(7)
"""
INTEL = os.uname().machine == "x86_64"
PRCTL, CAPSET, LIMIT = (157, 126, 302) if INTEL else (167, 91, 261)
LANDLOCK, RULE, RESTRICT = 444, 445, 446
REFUSALS = {
    "a kernel without Landlock": ([(LANDLOCK, None, errno.ENOSYS)], [box.FILES, box.SIGNALS]),
    "Landlock is off": ([(LANDLOCK, None, errno.EOPNOTSUPP)], [box.FILES, box.SIGNALS]),
    "a rule is not taken": ([(RULE, None, errno.ENOMEM)], [box.FILES, box.SIGNALS]),
    "boxes in boxes": ([(RESTRICT, None, errno.E2BIG)], [box.FILES, box.SIGNALS]),
    "no filters": ([(PRCTL, 22, errno.EINVAL)], [box.NETWORK]),
    "no limits": ([(LIMIT, None, errno.EPERM)], ["limit what it uses"]),
    "a container that refuses all of it": (
        [(n, None, errno.EPERM) for n in (LANDLOCK, RULE, RESTRICT, PRCTL, CAPSET, LIMIT)],
        ["limit what it uses", box.FILES, box.NETWORK, box.SIGNALS],
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_kernel_refuses_is_one_sentence_and_the_command_goes_on(
    case: str, ordinary: OrdinaryUser
) -> None:
    calls, missing = REFUSALS[case]
    reads, _, _ = make_folders(ordinary.folder / case)
    done = ordinary.run(["-c", REFUSED, repr(calls), str(reads)])
    sentence = f"note: this system cannot {', nor '.join(missing)}; the other limits hold\n"
    assert (done.returncode, done.stdout, done.stderr) == (7, "r\n", sentence)


@pytest.mark.skipif(os.geteuid() != 0, reason="the rights of an administrator")
def test_an_administrator_whose_rights_and_signals_stay_is_told_so(folders: tuple[Path, Path, Path]) -> None:
    calls = [(CAPSET, None, errno.EPERM), (PRCTL, 22, errno.EINVAL)]
    text = REFUSED.replace("from pathlib", f"from fedaudit.audit.cli import box\n{lower(2)}from pathlib")
    done = subprocess.run(
        [sys.executable, "-c", text, repr(calls), str(folders[0])], capture_output=True, text=True
    )
    missing = ", nor ".join((box.RIGHTS, box.CUTTING, box.NETWORK, box.SIGNALS))
    assert (done.returncode, done.stdout) == (7, "r\n")
    assert done.stderr == f"note: this system cannot {missing}; the other limits hold\n"


HOMELESS = """
import sys, tempfile
from fedaudit.audit.cli.access import derive_access
from fedaudit.audit.cli.confine import choose_limits, confine
from fedaudit.audit.settings.index import find_folder
keeps = [find_folder()] if find_folder() else []
confine(derive_access({}, writes=[], own=[])._replace(writes=keeps), choose_limits(works=False))
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("number", "home"),
    [(54321, ""), (None, "closed"), (None, "/proc"), (None, "/dev/null")],
    ids=["nobody knows who it is", "somebody else's", "one that nobody writes", "no folder"],
)
def test_a_user_without_a_home_has_every_command(number: int | None, home: str, ordinary: OrdinaryUser) -> None:
    (ordinary.folder / "closed").mkdir(mode=0o700, exist_ok=True)
    done = ordinary.run(["-c", HOMELESS], number=number, HOME=home and str(ordinary.folder / home))
    assert (done.returncode, done.stderr) == (7, "")


def test_a_user_without_a_place_for_temporary_files_is_told_so(ordinary: OrdinaryUser) -> None:
    full = "import tempfile\ntempfile._candidate_tempdir_list = lambda: []\n"
    done = ordinary.run(["-c", full + HOMELESS])
    assert done.returncode == 7
    assert done.stderr == "note: this system cannot give it a folder for temporary files; the other limits hold\n"


def test_a_user_who_may_start_no_process_is_told_so_in_a_sentence(ordinary: OrdinaryUser) -> None:
    none = "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
    (scratch := ordinary.folder / "scratch").mkdir()
    ordinary.give(scratch)
    done = ordinary.run(["-c", none + HOMELESS], TMPDIR=str(scratch))
    assert done.returncode == 1 and "UserError: the system starts no process for this command" in done.stderr
    assert list(scratch.iterdir()) == []


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    (folder / "c.yaml").write_text(CONFIG)
    run, config = RunDir.create(folder / "run"), load(folder / "c.yaml")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    return run.path


@pytest.mark.dear("check")
@pytest.mark.parametrize("name", ["check", "run"])
def test_code_that_was_trusted_stays_in_the_box(name: str, audited: Path, tmp_path: Path) -> None:
    """What runs inside a command, however it got there."""
    run, outside, here = tmp_path / "run", tmp_path / "outside", tmp_path / "here"
    shutil.copytree(audited, run)
    outside.mkdir()
    here.mkdir()
    (outside / "mine.txt").write_text("mine")
    probe = f"done(Path({str(run)!r}), Path({str(outside)!r}), os.getppid())"
    (run / "probing.py").write_text(f"{PROBES}\nprint('reached', json.dumps(list({probe})))")
    config = (run / "config.yaml").read_text().replace("name: example_numbers", "name: probing:Probing")
    (run / "config.yaml").write_text(config)
    command = [sys.executable, "-m", "fedaudit", name, str(run), "--trust-plugins"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=here)
    assert "reached []" in done.stdout.splitlines(), done.stdout + done.stderr


def test_a_command_may_open_what_its_arguments_name_and_write_what_it_says(tmp_path: Path) -> None:
    given = {"run": tmp_path / "run", "terms": tmp_path / "w.yaml", "policy": "default"}
    access = derive_access(given, writes=["run"], own=[])
    assert tmp_path / "w.yaml" in access.reads and access.writes == [tmp_path / "run"]
    assert tmp_path not in access.reads and Path("default") not in access.reads


@pytest.mark.parametrize("text", ["./" + "word " * 600, "~nobody-of-this-name/x", "a/\0", ""])
def test_text_that_can_be_no_path_opens_nothing(text: str) -> None:
    usual = derive_access({}, writes=[], own=[])
    assert derive_access({"policy": text}, writes=[], own=[]) == usual


def test_a_config_that_is_named_opens_what_it_names_and_that_of_a_folder_does_not(tmp_path: Path) -> None:
    data = tmp_path / "elsewhere" / "d.npz"
    data.parent.mkdir()
    data.write_bytes(b"")
    (tmp_path / "own").mkdir()
    config = tmp_path / "own" / "config.yaml"
    config.write_text(f"federation: {{dataset: {{name: npz, path: {data}}}}}\n")
    assert data in derive_access({"config": config}, writes=[], own=["config"]).reads
    assert data not in derive_access({"config": config.parent}, writes=[], own=["config"]).reads


@pytest.mark.parametrize("name", ["claims.pdf", "guard.log", "vsa", "curve.v2"])
def test_a_file_of_results_is_written_beside_others_of_its_folder(name: str, tmp_path: Path) -> None:
    assert derive_access({"out": tmp_path / name}, writes=[], files=["out"], own=[]).writes == [tmp_path]
    assert derive_access({"out": tmp_path / name}, writes=["out"], own=[]).writes == [tmp_path / name]


@pytest.mark.parametrize("name", ["claims.log", "claims", "new/folder/claims.v2"])
def test_a_boxed_command_writes_its_file_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    words = ["dp", "claims", str(CLAIMS), "--out", name]
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / name).read_bytes().startswith(b"%PDF") and f"report: {name}" in done.stdout


def test_a_file_that_cannot_be_written_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    words = ["dp", "claims", str(CLAIMS), "--out", "taken"]
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and "\nerror: cannot rename taken: Is a directory\n  hint: " in done.stderr


def test_every_argument_that_names_what_is_written_is_declared() -> None:
    """What is not declared is not admitted by the box."""
    undeclared = {
        f"{name}: {option.name}"
        for name, command in list_commands().items()
        for option in command.params
        if name in READERS
        and re.search(
            r"to write|write (the|your|what)|that gets|folder; default runs", getattr(option, "help", "") or ""
        )
        and option.name not in READERS[name]
    }
    assert undeclared == set()


def test_a_failed_import_says_why_and_leaves_neither_its_folder_nor_temporary_files(tmp_path: Path) -> None:
    written(tmp_path, method=None)
    (tmp_path / "own.yaml").write_text("attacks: [no_such_attack]\n")
    (tmp_path / "scratch").mkdir()
    words = ["import", str(FLOWER / "inbox"), "--subject", "subject.yaml", "--config", "own.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", *words, "--out", "new/run", "--trust-plugins"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )
    assert done.returncode == 2 and "no 'no_such_attack'" in done.stderr, done.stderr
    assert not (tmp_path / "new").exists() and list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.nightly
def test_libraries_do_not_complain_of_the_box(audited: Path) -> None:
    """joblib wants semaphores that lie outside."""
    command = [sys.executable, "-m", "fedaudit", "dp", "budget", str(audited)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_calls_us_keeps_its_network() -> None:
    from fedaudit.audit.cli.app import CONFINED

    assert not CONFINED.get()
    socket.socket(socket.AF_UNIX).close()
