"""Faults put into the methods one at a time: how many of the comparisons notice each.

    python -m tests.fl.equivalence.faults [NAME ...]        (`make equivalence FAULTS=1`)

A fault is a piece of source that is replaced while it is imported, in a process of its own; no file is changed.
Noticed means that a golden trajectory, a single term or a second program leaves its tolerance, or that the
method breaks. What nothing notices is a gap in the comparisons.
"""

import importlib.machinery
import os
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np  # noqa: F401  (libraries are imported once, before the processes part)
import opacus  # noqa: F401
import scipy.optimize  # noqa: F401
import torch  # noqa: F401

from fedaudit.audit.cli.show import print_table
from fedaudit.fl.runtime.errors import UserError
from tests.fl.equivalence.list_of_faults import FAULTS, Fault

OURS = ("fedaudit", "tests")
ROOT = Path(__file__).parents[3]


class Seen(NamedTuple):
    """Of the comparisons that use a method, or all: those that notice, and those that were made."""

    noticing: list[str]
    made: int


def noticed(fault: Fault) -> Seen:
    """In a process of its own, with the fault in its source."""
    path = ROOT / fault.file
    if fault.old not in path.read_text():
        raise UserError(
            f"{fault.name}: its text is not in {fault.file}", hint="the source has changed: mend the list"
        )
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        code = 1
        try:
            for name in [n for n in sys.modules if n.partition(".")[0] in OURS]:
                del sys.modules[name]
            _import_with(path, fault)
            from tests.fl.equivalence.comparisons import compare

            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(tuple(compare(fault.methods)), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        return Seen(["everything: nothing runs"], 0)
    found: dict[str, bool] = dict(pickle.loads(text))
    return Seen([name for name, wrong in found.items() if wrong], len(found))


def _import_with(path: Path, fault: Fault) -> None:
    """From here on this file is imported with its fault; everything else as it is."""
    ordinary = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if Path(self.path).resolve() != path.resolve():
            return ordinary(self, fullname)
        return compile(path.read_text().replace(fault.old, fault.new, 1), str(path), "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def main() -> int:
    wanted = sys.argv[1:]
    rows, missed = [], 0
    for fault in FAULTS:
        if wanted and fault.name not in wanted:
            continue
        seen = noticed(fault)
        missed += not seen.noticing
        few = ", ".join(seen.noticing[:3]) + (" ..." if len(seen.noticing) > 3 else "")
        rows.append([fault.name, fault.file, f"{len(seen.noticing)} of {seen.made}", few or "NOTHING"])
        print(f"{rows[-1][2]:>10}  {fault.name}: {rows[-1][3]}", file=sys.stderr, flush=True)
    print_table(["fault", "file", "noticed by", "such as"], rows)
    print(f"{len(rows) - missed} of {len(rows)} faults are noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
