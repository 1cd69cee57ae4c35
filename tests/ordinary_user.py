"""An ordinary user, whoever runs the tests: uid 65534 where that is the administrator.

Whatever it runs has to be readable by everybody, which an interpreter below /root is not: that one's files are
linked into the user's folder.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_house import ROOT

NOBODY = 65534
HEAVY = ("site-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3")  # of what an interpreter brings


@dataclass(frozen=True)
class OrdinaryUser:
    """Runs programs with nobody's rights, in a folder of its own."""

    folder: Path
    python: str
    environment: dict[str, str]
    number: int | None  # None: who runs the tests is an ordinary user

    def give(self, folder: Path) -> Path:
        """Make the folder with all below it the user's."""
        if self.number is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.number, self.number, follow_symlinks=False)
        return folder

    def run(
        self, words: Sequence[str], number: int | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these words, as another number where one is given; an empty variable is left out."""
        everything = self.environment | environment
        who = {} if self.number is None else {"user": number or self.number, "group": number or self.number}
        return subprocess.run(
            [self.python, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={name: value for name, value in everything.items() if value},
            **who,  # type: ignore[call-overload]
            **({} if self.number is None else {"extra_groups": []}),
        )


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """Skips the test where the checkout or what is installed can be read by the administrator alone."""
    with tempfile.TemporaryDirectory(prefix="ordinary-") as name:
        folder = Path(name)
        paths = {
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ.get("PATH", ""),
            "HOME": name,
            "OMP_NUM_THREADS": "1",
        }
        paths |= {k: os.environ[k] for k in ("PYTHONPYCACHEPREFIX",) if k in os.environ}
        if os.geteuid() != 0:
            yield OrdinaryUser(folder, sys.executable, paths, None)
            return
        if closed := [path for path in (ROOT, Path(sys.prefix), folder.parent) if not _is_open(path)]:
            pytest.skip(f"{closed[0]} is the administrator's alone")
        python = sys.executable
        if not _is_open(Path(python)):
            python = str(_link_python(folder / "python"))
            paths["PYTHONPATH"] = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
            paths["LD_LIBRARY_PATH"] = str(folder / "python" / "lib")
        os.chmod(folder, 0o755)
        os.chown(folder, NOBODY, NOBODY)
        yield OrdinaryUser(folder, python, paths, NOBODY)


def _is_open(path: Path) -> bool:
    """Whether everybody may read it, and search what lies above it."""
    path = path.resolve()
    return bool(path.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in path.parents)


def _link_python(folder: Path) -> Path:
    """The interpreter and its own modules, in a folder that everybody may read."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "bin").mkdir(parents=True)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        folder / "lib" / version,
        copy_function=_link,
        ignore=shutil.ignore_patterns(*HEAVY),
    )
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        _link(str(library.resolve()), str(folder / "lib" / library.name))
    _link(str(Path(sys.executable).resolve()), str(folder / "bin" / version))
    return folder / "bin" / version


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy(source, target)
