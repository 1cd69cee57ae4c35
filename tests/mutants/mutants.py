"""The list of faults in mutants.yaml, and how one is put into a copy of the project and taken out again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedaudit.fl.runtime.yaml import read_yaml

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: a piece of a file and what stands there instead."""

    name: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: list[str]  # files, folders or node ids, the likeliest first

    def apply(self, text: str) -> str:
        """The text of the file with the fault in it; raises ValueError where `old` does not occur once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {count} times in {self.file}; mend the list")
        return text.replace(self.old, self.new)


def read_mutants() -> list[Mutant]:
    """All faults of mutants.yaml, in its order."""
    return [Mutant(**entry) for entry in read_yaml(LIST)]


@contextmanager
def put_in(mutant: Mutant, copy: Path, number: int) -> Iterator[None]:
    """Put a fault into a copy of the project, and take it out at the end.

    Python believes compiled code whose source has the same size and the same second of change. So the changed
    file gets a time of its own, `number` apart from the original's, and the original gets its own time back.
    """
    path = copy / mutant.file
    text, changed = path.read_text(encoding="utf-8"), path.stat().st_mtime_ns
    path.write_text(mutant.apply(text), encoding="utf-8")
    later = changed + 2_000_000_000 * (number + 1)
    os.utime(path, ns=(later, later))
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(changed, changed))
