"""A box around this process and all that it starts: no network, and no files but those that are admitted.

Linux offers two means, neither of which needs a privilege, and both of which hold for children too:

* Landlock, which opens, lists, makes and removes nothing outside of the folders that were admitted;
* a filter of system calls, by which there are no sockets (also none of the Unix domain, which Landlock leaves),
  no ring of requests that would go round the filter, no typing into the user's terminal, and nothing else of what
  Landlock leaves: modes, owners and times of files, memory and keys shared with other processes, their limits.
  Below the third version of Landlock, the first that keeps files from being emptied, the filter does that too.

The box is a net below what reads with care, and no wall before the user: what a system refuses is said, and the
rest holds. Both have to be asked for before a library starts threads, so this file imports nothing but the
standard library. Numbers and structures: landlock(7), seccomp(2), linux/bpf_common.h.
"""

import ctypes
import os
import platform
import stat
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl
_CAPABILITIES, _OF_OTHERS = 0x20080522, 0b110  # version of the structure; CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture
_RULESET_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _DEVICE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE
_MAKING = sum(1 << bit for bit in (4, 5, 7, 8, 10, 12, 13))  # and removing and renaming
_RIGHTS = (0, 13, 14, 15, 15, 16)  # on files, by version of Landlock; later ones know as many as the last
_TCP, _OUTER_SOCKETS_AND_SIGNALS = 0b11, 0b11
_STOPS_CUTTING, _STOPS_SIGNALS = 3, 6  # versions of Landlock


class SystemCalls(NamedTuple):
    """Numbers of one architecture."""

    architecture: int
    others: int  # the first call of another table
    ioctl: int
    prlimit: int
    refused: tuple[int, ...]
    truncate: int
    opening: tuple[tuple[int, int], ...]  # calls that open a file, and where in their arguments the flags are


_OF_BOTH = (425, 452, 463, 466, 469)  # io_uring_setup, fchmodat2, setxattrat, removexattrat, file_setattr
_OPENAT2 = 437
# By machine. Refused are sockets; modes, owners, times and attributes of files; watches; what is shared; mounts;
# files by a handle in place of a path
_ARCHITECTURES = {
    "x86_64": SystemCalls(
        architecture=0xC000003E,
        others=0x40000000,
        ioctl=16,
        prlimit=302,
        refused=(
            *(41, *_OF_BOTH),
            *(90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280),
            *(253, 294, 300),  # inotify_init, inotify_init1, fanotify_init
            *(29, 30, 64, 68, 248, 249, 250),  # shmget, shmat, semget, msgget, add_key, request_key, keyctl
            *(165, 272, 308, 298, 321, 323),  # mount, unshare, setns, perf_event_open, bpf, userfaultfd
            304,  # open_by_handle_at
        ),
        truncate=76,
        opening=((2, 1), (257, 2)),  # open, openat
    ),
    "aarch64": SystemCalls(
        architecture=0xC00000B7,
        others=0xFFFFFFFF,
        ioctl=29,
        prlimit=261,
        refused=(
            *(198, *_OF_BOTH),
            *(5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88),
            *(26, 262),
            *(194, 196, 190, 186, 217, 218, 219),
            *(40, 97, 268, 241, 280, 282),
            265,
        ),
        truncate=45,
        opening=((56, 2),),
    ),
}
_TYPE_INTO_TERMINAL, _TERMINAL_MENU = 0x5412, 0x541C  # requests of ioctl
_CUT, _ACCESS = 0o1000, 0b11  # flags of a file that is opened: O_TRUNC, O_ACCMODE
_ALLOW, _REFUSE, _LACK = 0x7FFF0000, 0x00050000 | 13, 0x00050000 | 38  # EACCES, ENOSYS

SYSTEM = (  # what libraries read besides modules; no accounts, no settings of the user
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/etc/ld.so.cache", "/etc/fonts"),
    *("/etc/localtime", "/etc/timezone", "/etc/os-release", "/etc/alternatives"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


# What a system may be unable to do
RIGHTS = "take an administrator's rights from it"
FILES = "keep it to the files that you named"
CUTTING = "keep it from emptying files that it reads"
NETWORK = "refuse it the network"
SIGNALS = "keep its signals from your other processes"


class Access(NamedTuple):
    """Files and folders that a process may read, and those below which it may also write."""

    reads: Sequence[Path] = ()
    writes: Sequence[Path] = ()


def enter(access: Access) -> list[str]:
    """Put this process into the box. Returns what this system cannot do, in words; that is no error."""
    if threading.active_count() > 1:
        raise RuntimeError("a process with threads cannot be boxed")
    if not sys.platform.startswith("linux"):
        return [FILES, NETWORK, SIGNALS]
    libc = ctypes.CDLL(None, use_errno=True)
    version = ask_landlock_version(libc)
    has_rights = _drop_privileges(libc)
    has_files = version > 0 and _restrict_files(libc, access, version)
    has_filter = _filter_system_calls(libc, cutting=version < _STOPS_CUTTING)
    held = {
        RIGHTS: has_rights,
        FILES: has_files,
        CUTTING: has_filter or version >= _STOPS_CUTTING or not has_files,  # which says more
        NETWORK: has_filter,
        SIGNALS: has_files and version >= _STOPS_SIGNALS,
    }
    return [what for what, holds in held.items() if not holds]


def ask_landlock_version(libc: ctypes.CDLL) -> int:
    """Of this kernel; less than 1 where it has none or keeps it from us."""
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION))


def _drop_privileges(libc: ctypes.CDLL) -> bool:
    """An administrator keeps the right to open what others own, where Landlock admits it, and no other."""
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # without which neither of the others is granted
    kept = _OF_OTHERS if os.geteuid() == 0 else 0
    done = libc.capset(struct.pack("<Ii", _CAPABILITIES, 0), struct.pack("<6I", kept, kept, 0, 0, 0, 0))
    return bool(done == 0) or os.geteuid() != 0


def _restrict_files(libc: ctypes.CDLL, access: Access, version: int) -> bool:
    handled = (1 << _RIGHTS[min(version, len(_RIGHTS) - 1)]) - 1
    tcp, scoped = (_TCP if version >= 4 else 0), (_OUTER_SOCKETS_AND_SIGNALS if version >= _STOPS_SIGNALS else 0)
    rules = struct.pack("<QQQ", handled, tcp, scoped)
    rules = rules[: 24 if version >= _STOPS_SIGNALS else 16 if version >= 4 else 8]
    ruleset = libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0:
        return False
    seen = _EXECUTE | _READ | _LIST
    rows = [(path, seen) for path in (*map(Path, SYSTEM), *_of_python(), *access.reads)]
    rows += [(Path(name), _READ | _WRITE | _TRUNCATE) for name in DEVICES]
    rows += [(path, _READ | _WRITE | _DEVICE) for path in Path("/dev").glob("nvidia*")]
    rows += [(path, (_READ | _LIST | _WRITE | _TRUNCATE | _MAKING)) for path in access.writes]
    try:
        if not all(_admit(libc, ruleset, path, rights & handled) for path, rights in rows):
            return False
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _of_python() -> Iterable[Path]:
    """The interpreter, what it has installed, and where this package lies (for a checkout: outside of them)."""
    yield from map(Path, {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix})
    if sys.executable:  # unknown to a program that has Python inside
        yield Path(sys.executable).resolve()
    yield from (Path(entry) for entry in sys.path if entry)
    yield Path(__file__).resolve().parents[2]


def _admit(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> bool:
    """False where the kernel does not take the rule: with the others alone the user would be refused the path."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return True  # it is not there, and what is not admitted is refused
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _OF_FILES
        return bool(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("<Qi", rights, handle), 0) == 0)
    finally:
        os.close(handle)


def _filter_system_calls(libc: ctypes.CDLL, *, cutting: bool) -> bool:
    """A filter in Berkeley packet code, over (number at 0, architecture at 4, arguments from 16)."""
    calls = _ARCHITECTURES.get(platform.machine())
    if calls is None:
        return False
    rows = _compile_filter(calls, cutting=cutting)
    raw = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    program = struct.pack("@HP", len(rows), ctypes.addressof(raw))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, program, 0, 0) == 0)


def _compile_filter(calls: SystemCalls, *, cutting: bool) -> list[tuple[int, int, int, int]]:
    """Rows of (operation, steps forward where it holds, where it does not, value); the last three end it.

    `cutting`: whether it keeps files from being emptied too, other than by who opens them for writing: that every
    Landlock sees.
    """
    load, equal, above, mask, end = 0x20, 0x15, 0x35, 0x54, 0x06
    number, architecture, first, second = 0, 4, 16, 24  # the low halves of arguments
    allow, refuse, lack = -3, -2, -1  # the last rows
    rows = [
        (load, 0, 0, architecture),
        (equal, 0, refuse, calls.architecture),
        (load, 0, 0, number),
        (above, refuse, 0, calls.others),
        *((equal, refuse, 0, call) for call in calls.refused),
    ]
    if cutting:
        rows += [(equal, refuse, 0, calls.truncate)]
        rows += [(equal, lack, 0, _OPENAT2)]  # its flags cannot be seen here; libraries do without it
        for call, at in calls.opening:
            rows += [
                (equal, 0, 4, call),
                (load, 0, 0, first + 8 * at),
                (mask, 0, 0, _CUT | _ACCESS),
                (equal, refuse, 0, _CUT),
                (equal, refuse, allow, _CUT | _ACCESS),  # 3: neither for reading nor for writing
            ]
    rows += [
        (equal, 0, 2, calls.prlimit),
        (load, 0, 0, first),
        (equal, allow, refuse, 0),  # limits of this process alone
        (equal, 0, allow, calls.ioctl),
        (load, 0, 0, second),
        (equal, refuse, 0, _TYPE_INTO_TERMINAL),
        (equal, refuse, allow, _TERMINAL_MENU),
        (end, 0, 0, _ALLOW),
        (end, 0, 0, _REFUSE),
        (end, 0, 0, _LACK),
    ]

    def count_steps(row: int, to: int) -> int:
        return to if to >= 0 else len(rows) + to - row - 1

    return [(op, count_steps(i, yes), count_steps(i, no), value) for i, (op, yes, no, value) in enumerate(rows)]
