"""Code of a user's own: `mine:Class` is mine.py beside the config, loaded by its path, or an installed module.

Nothing is searched for: no folder is added to Python's path, so a file beside a config that nobody names is never
imported, whatever a library looks for. An installed module comes first, so that no file takes its place. What
runs is the source that its digest is of, never a compiled copy that lies beside it.
"""

import hashlib
import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from fedaudit.fl.runtime.errors import UserError, quote_error

NAME = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*)*):([^\W\d]\w*)")  # module.module:Class
OF_KIND = re.compile(r"\bkinds?(\[\d+\])?$")  # keys of open kinds, which are written as code is: client:losses
OURS = __name__.partition(".")[0]
HEARD = {"socket.connect": "a connection", "subprocess.Popen": "another program", "os.putenv": "the environment"}
CODE = (".py", ".pyc", ".so", ".pyd")


class _Beside(SourceFileLoader):
    """Marks the modules that were loaded from beside a config, from their source."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"no compiled copy of {path} is read or written")


class _BesideFinder(MetaPathFinder):
    """Finds the other modules of a package beside a config as its first one was: from their source."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = sys.modules.get(fullname.partition(".")[0])
        if path is None or not isinstance(getattr(top, "__loader__", None), _Beside):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Beside(fullname, spec.loader.path)
            spec.cached = None
        return spec


sys.meta_path.insert(0, _BesideFinder())


def is_code(key: str, value: str) -> bool:
    """Whether the text at a config's key is module:Class."""
    return bool(NAME.fullmatch(value)) and not OF_KIND.search(key)


def bring(
    name: str, folders: Sequence[Path], where: str = "", admit: Callable[[Path], None] = lambda file: None
) -> None:
    """Load the file or package that `name` ("module:Class") needs from the first of these folders that has it.

    Does nothing where the module is installed, or imported already. `admit` is given the file before it is
    loaded, and raises where it may not be. Raises UserError, about the key `where`, for a name that is none and
    for a file that fails.
    """
    top = _split_name(name, where)[0].partition(".")[0]
    file = find_beside(top, folders)
    known = sys.modules.get(top)
    if known is not None and (file is None or not _is_beside(known) or known.__file__ == str(file)):
        return
    if known is None and _is_installed(top, file):
        return
    if file is None:
        raise UserError(
            f"{where}: cannot load {name!r}: no {top}.py in {_list_places(folders)}".removeprefix(": "),
            hint=f"copy {top}.py, or the folder {top} of a package, there, or install it",
            key=where,
        )
    admit(file)
    try:
        _load(top, file)
    except Exception as error:
        raise _explain_sibling(name, error, folders, where) or refusal(name, error, where) from error


def find_beside(top: str, folders: Sequence[Path]) -> Path | None:
    """The file of a module, or the first one of a package, in the first of these folders that has it."""
    places = [p for f in folders for p in (f / f"{top}.py", f / top / "__init__.py")]
    return next((p.resolve() for p in places if p.is_file()), None)


def _is_beside(module: ModuleType) -> bool:
    return isinstance(getattr(module.__spec__, "loader", None), _Beside)


def _list_places(folders: Sequence[Path]) -> str:
    """In words; a relative path is of the current folder, which has no name."""
    return " or ".join(dict.fromkeys("the current folder" if f == Path() else str(f) for f in folders))


def _explain_sibling(name: str, error: Exception, folders: Sequence[Path], where: str) -> UserError | None:
    """What to do where a file imports another one beside it, which nobody named; None for another error."""
    other = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not other or find_beside(other, folders) is None:
        return None
    package = f"my_{name.partition(':')[0]}"
    what = f"cannot load {name!r}: it imports {other}, and beside a config only what is named is loaded"
    return UserError(
        f"{where}: {what}".removeprefix(": "),
        hint=f"put both into a folder, such as {package}, with an empty __init__.py; "
        f"import {package}.{other}, and name '{package}.{name}'",
        key=where,
    )


def _is_installed(top: str, file: Path | None) -> bool:
    """Whether Python finds such a module elsewhere: a notebook's path has the folder where it was started."""
    spec = importlib.util.find_spec(top)
    return spec is not None and (spec.origin is None or Path(spec.origin).resolve() != file)


def find_whole(file: Path) -> Path:
    """What a found file belongs to: a module is itself, the first file of a package its folder."""
    return file.parent if file.name == "__init__.py" else file


def list_code_files(whole: Path) -> list[Path]:
    """The file of a module, or every one of a package but compiled copies, which nobody runs."""
    if whole.is_file():
        return [whole]
    return sorted(p for p in whole.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def digest_code(whole: Path) -> str:
    """SHA-256, in hexadecimal, of a module; of a package of all its files, by their place in it."""
    digests = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in list_code_files(whole)}
    if whole in digests:
        return digests[whole]
    lines = (f"{path.relative_to(whole).as_posix()}\0{digest}\n" for path, digest in digests.items())
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()


def files(names: Iterable[str]) -> dict[str, Path]:
    """Module -> file of what was brought of the modules that these names ("module:Class") begin with."""
    found = {top: getattr(sys.modules.get(top), "__spec__", None) for top in list_tops(names)}
    return {n: Path(s.origin) for n, s in found.items() if s and s.origin and isinstance(s.loader, _Beside)}


@contextmanager
def importing_anew(names: Collection[str]) -> Iterator[None]:
    """Inside, modules of the code that these names ("module:Class") name are as in a new process.

    What it left in its modules, its classes or the environment is not there, and nothing stays of what it leaves
    in them. A name of the program itself has no file to be read again.
    """
    named = list_tops(names) - {"__main__", OURS}
    tops = {top for top in named if getattr(sys.modules.get(top), "__spec__", None) is not None}
    brought, environment = files(tops), dict(os.environ)

    def forget() -> dict[str, ModuleType]:
        """What is forgotten. Nearly every federation has no such code, and Python has some thousand modules."""
        names = [n for n in sys.modules if n.partition(".")[0] in tops] if tops else []
        return {name: sys.modules.pop(name) for name in names}

    kept = forget()
    try:
        for top, file in brought.items():
            _load(top, file)
        yield
    finally:
        forget()
        sys.modules.update(kept)
        if os.environ != environment:
            os.environ.clear()
            os.environ.update(environment)


_traces: set[str] | None = None
_tops: frozenset[str] = frozenset()


@contextmanager
def noting_traces(names: Collection[str]) -> Iterator[set[str]]:
    """What code of these names ("module:Class") opens inside, in words; in whichever thread it does.

    A file, a connection, another program or the environment can hold what one run leaves for the next one. Nobody
    can put that back to where it was.
    """
    global _traces, _tops
    if not hasattr(sys, "_fedaudit_traces"):  # Python keeps such a hook until it ends
        sys._fedaudit_traces = True  # type: ignore[attr-defined]
        sys.addaudithook(_note_trace)
    _traces, _tops = set(), frozenset(list_tops(names))
    try:
        yield _traces
    finally:
        _traces = None


def _note_trace(event: str, args: tuple[Any, ...]) -> None:
    if _traces is None or not (event == "open" or event in HEARD):
        return
    if event == "open" and not (
        isinstance(args[0], str | bytes | os.PathLike) and not _is_code(os.fsdecode(args[0]))
    ):
        return
    if _is_opened_by_team():
        _traces.add(HEARD.get(event) or f"the file {os.path.basename(os.fsdecode(args[0]))!r}")


def _is_code(path: str) -> bool:
    return path.endswith(CODE) or "__pycache__" in path


def _is_opened_by_team() -> bool:
    """Whether the nearest caller that is not a library's is the team's code."""
    frame = sys._getframe(2)
    while frame is not None:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top in _tops or top == OURS:
            return top in _tops
        frame = frame.f_back  # type: ignore[assignment]
    return False


def list_tops(names: Iterable[str]) -> set[str]:
    """The top-level modules of these names."""
    return {name.partition(":")[0].partition(".")[0] for name in names}


class Carried:
    """A value on its way to another process, with the files of a user's own that it needs there.

    Only a process that is started anew reads it back: a forked one has the value and the modules already. A file
    that is gone belonged to an earlier run of this process, such as one in a folder for the time being.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        there = {name: file for name, file in files(tuple(sys.modules)).items() if file.is_file()}
        return _pack_files, (there, pickle.dumps(self.value))


def _pack_files(files: Mapping[str, Path], data: bytes) -> Carried:
    for name, file in files.items():
        _load(name, file)
    return Carried(pickle.loads(data))  # our own process wrote this


def name_code(value: object) -> str:
    """The name, module:Class, of the class of a value."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def find(name: str, where: str = "") -> object:
    """What "module:Class" names; raises UserError where there is none."""
    module, attribute = _split_name(name, where)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's own module raises
        raise refusal(name, error, where) from error


def refusal(name: str, error: object, where: str) -> UserError:
    if isinstance(error, Exception):
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        error = kind + quote_error(error)
    hint = "write module:Class; the module is installed, or a file or a package beside the config"
    return UserError(f"{where}: cannot load {name!r}: {error}".removeprefix(": "), hint=hint, key=where)


def _split_name(name: str, where: str) -> tuple[str, str]:
    """Module and class of a name."""
    match = NAME.fullmatch(name)
    if match is None:
        raise refusal(name, "it is not module:Class", where)
    return match[1] + match[2], match[3]


def _load(top: str, file: Path) -> None:
    whole = find_whole(file)
    package = None if whole == file else [str(whole)]
    spec = importlib.util.spec_from_file_location(
        top, file, loader=_Beside(top, str(file)), submodule_search_locations=package
    )
    assert spec is not None and spec.loader is not None
    for stale in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:  # of another folder
        del sys.modules[stale]
    module = sys.modules[top] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[top]
        raise
