"""The run folder: where each phase reads and writes, and what keeps it whole.

Writes are atomic (fl/runtime/durable.py). config.yaml is the resolved config; a folder
simulated with other settings is refused by naming the first key that differs. Nothing read from a
folder is executed but code to which its user agreed (audit/settings/consent.py).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedaudit.audit.case.reading import parse, plain_json, survey
from fedaudit.audit.case.schemas import MetricsLine, PhaseEntry, TrainedOn
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.resolve import dump, keep, resolve
from fedaudit.fl.runtime import durable, foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

T = TypeVar("T")
STAGING = ".importing"  # folder in which an import is put together


class ConfigDifference(NamedTuple):
    """The first key in which two configs differ."""

    key: str
    left: Any
    right: Any


class RunDir:
    """One folder. `RunDir.create` for a phase that simulates, `RunDir.open` for all others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.artifacts = path / "artifacts"
        self.ledger = path / "ledger.jsonl"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint"
        self.evidence = path / "evidence"
        self.audit = path / "audit.json"
        self.policy = path / "policy.json"
        self.phases = path / "phases.json"
        self.data = path / "data.json"
        self.chain = path / "chain.json"
        self.truth = path / "truth.safetensors"  # of a recorded case, as the next
        self.base = path / "base.safetensors"
        self.imported = path / "import.json"

    @classmethod
    def create(cls, path: Path) -> "RunDir":
        """A folder to be worked in, where there may be none yet; one with somebody's other files is refused."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file, not a run folder", hint="choose another --out")
        run = cls(path)
        if path.exists():
            survey(path)
        if path.exists() and any(path.iterdir()) and not run.config.exists():
            ours = (".lock", ".config.yaml.partial", STAGING)
            strangers = [p.name for p in path.iterdir() if p.name not in ours]
            if strangers:
                raise UserError(
                    f"{path} holds {sorted(strangers)[0]!r} but no config.yaml: not a run folder",
                    hint="choose another --out",
                )
        return run

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """A folder that was simulated; raises UserError where there is none."""
        if not path.is_dir():
            raise UserError(f"no run folder {path}", hint="`fedaudit run CONFIG` makes one")
        run = cls(path)
        survey(path)
        if not run.config.is_file():
            raise UserError(
                f"{path} is not a run folder: it has no config.yaml", hint="`fedaudit run CONFIG` makes one"
            )
        return run

    def load_config(self, *, trust_plugins: bool = False, data: Mapping[str, Path] | None = None) -> Config:
        """The folder's own config, which others may have written.

        It reads nothing outside of its folder but `data`, paths of the user by name, and downloads nothing.
        Raises UserError, for code to which the user has not agreed as well.
        """
        return load(self.config, data or {}, trust=trust_plugins).bring_code([self.path])

    def adopt(self, config: Config, keys: Sequence[str]) -> dict[str, Any]:
        """Resolve `config` and keep it as config.yaml, with its user's own code beside it. Returns it resolved.

        Raises UserError where the folder was made with another value below one of `keys`.
        """
        resolved = resolve(config)
        if self.config.exists():
            before = load(self.config).model_dump(mode="json")
            old = {k: before.get(k) for k in keys}
            new = {k: Config.model_validate(resolved).model_dump(mode="json")[k] for k in keys}
            if found := difference(old, new):
                raise UserError(
                    f"{self.path} was made with {found.key}: {found.left!r}, the config says {found.right!r}",
                    hint=f"set it back to go on there, choose another --out, or delete {self.path}",
                )
        text = dump(resolved)
        if not self.config.exists() or self.config.read_text(encoding="utf-8") != text:
            self.write(self.config, text.encode())
            if not config.list_code():
                keep(config.model_dump(), resolved)  # whoever calls again finds it resolved
        for file in foreign.files(name for _, name in config.list_code()).values():
            self._keep_code(foreign.find_whole(file))
        return resolved

    def _keep_code(self, whole: Path) -> None:
        """Copy a module or a package into the folder, which stays whole when it moves."""
        if not whole.is_relative_to(self.path.resolve()):
            for path in foreign.list_code_files(whole):
                kept, code = self.path / path.relative_to(whole.parent), path.read_bytes()
                if not kept.is_file() or kept.read_bytes() != code:
                    self.write(kept, code)

    def inside(self, relative: str | Path) -> Path:
        """A path in the folder; raises UserError for one that leads outside, by .. or by a link."""
        path = (self.path / relative).resolve()
        if not path.is_relative_to(self.path.resolve()):
            raise UserError(
                f"{str(relative)!r} leads outside the run folder {self.path}",
                hint="do not trust this folder; its paths must stay inside",
            )
        return path

    def find_truth(self) -> tuple[Path | None, Path | None]:
        """Files of examples and of a base's weights that were given with a record; None where there is none."""
        truth, base = (self.inside(path.absolute()) for path in (self.truth, self.base))
        return truth if truth.is_file() else None, base if base.is_file() else None

    def write(self, path: Path, data: bytes) -> None:
        """Replace a file of the folder, whole or not at all, even if the machine stops meanwhile."""
        durable.write(self.inside(path.parent.absolute()) / path.name, data)

    def write_json(self, path: Path, value: Any) -> None:
        self.write(path, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")

    def read_json(self, path: Path) -> Any:
        """A JSON file of the folder; raises UserError where it is missing, damaged or outside."""
        return plain_json(self._read_bytes(path), str(path))

    def read(self, path: Path, form: type[T]) -> T:
        """A JSON file of the folder in its form (audit/case/schemas.py); raises UserError as `read_json`."""
        return parse(self._read_bytes(path), form, str(path))

    def history(self) -> list[dict[str, Any]]:
        """metrics.jsonl: a dictionary a measured round; raises UserError naming a bad line."""
        found = []
        for number, line in enumerate(self._read_bytes(self.metrics).splitlines(), start=1):
            parse(line, MetricsLine, f"{self.metrics} line {number}")
            found.append(parse_json(line))
        return found

    def _read_bytes(self, path: Path) -> bytes:
        found = self.inside(path.absolute())
        if not found.is_file():
            raise UserError(f"{path} is missing", hint="run the phase that writes it again")
        return found.read_bytes()

    def trained_on(self) -> dict[str, str] | None:
        """Digests of the data and the population that the simulation began with; None where it left none."""
        if not self.data.exists():
            return None
        return self.read(self.data, TrainedOn).model_dump()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Make the folder where it is missing, with nobody else working in it.

        What is refused before a round or a phase was kept leaves it as it was found.
        """
        found = {path.name for path in self.path.iterdir()} if self.path.exists() else set[str]()
        with durable.keep_if_filled(self.path), self.lock():
            try:
                yield
            except BaseException:
                if not self._holds_results():
                    for path in [p for p in self.path.iterdir() if p.name not in found]:
                        durable.remove_folder(path)
                raise

    def _holds_results(self) -> bool:
        """Whether a run could go on from here: a round was kept, or a phase came to its end."""
        entries = self.read(self.phases, dict[str, PhaseEntry]) if self.phases.exists() else {}
        return self.checkpoint.exists() or any(entry.seconds is not None for entry in entries.values())

    def lock(self) -> AbstractContextManager[None]:
        """Nobody else works in the folder meanwhile."""
        return durable.lock(self.path / ".lock")


def difference(left: Any, right: Any, key: str = "") -> ConfigDifference | None:
    """The first place where two plain values differ, depth first in the order of the keys."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in [*left, *(k for k in right if k not in left)]:
            at = f"{key}.{name}" if key else str(name)
            if found := difference(left.get(name), right.get(name), at):
                return found
        return None
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            if found := difference(a, b, f"{key}[{i}]"):
                return found
        return None
    same = left == right and isinstance(left, bool) == isinstance(right, bool)
    return None if same else ConfigDifference(key, left, right)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_files_of_people(folder: Path) -> list[Path]:
    """Files of a run with examples, messages or what attacks drew of them, and those of its variants."""
    names = (
        "artifacts",
        "checkpoint",
        "evidence",
        "ledger.jsonl",
        "stated-ledger.jsonl",
        "truth.safetensors",
        "import.json",
        "inbox.json",
    )
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in found if any(part in names for part in path.relative_to(folder).parts)]
