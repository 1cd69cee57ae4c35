"""Faults put into a copy of the project one at a time, and which test notices each: `make mutants`.

    python -m tests.mutants [--only NAME ...] [--whole] [--markers EXPRESSION] [--workers 2]

Each fault is put into a copy of the checkout, its own tests run until one fails, and it is taken out again. With
--whole, a fault that its own tests do not notice meets all that `make test` runs. At the end every test that
noticed a fault runs once more without any: a test that fails by itself notices nothing.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import NamedTuple

from tests.mutants.mutants import ROOT, Mutant, put_in, read_mutants

MARKERS = "not nightly"  # the marker expression of `make test`
PACKAGE = "fedaudit"  # must be imported from the copy, and from nowhere else
SECONDS = {"named": 900, "whole": 7200}  # that pytest may take
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
SLOW, NO_TESTS, WRONG_CALL = "it ran out of time", 5, 4


class Outcome(NamedTuple):
    """What became of one fault."""

    mutant: Mutant
    killer: str  # the test that noticed it; empty: none
    seconds: float


class Runner:
    """Runs pytest in copies of the checkout, as many at once as there are copies."""

    def __init__(self, folder: Path, workers: int, markers: str) -> None:
        self.markers = markers
        self.copies: SimpleQueue[Path] = SimpleQueue()
        self.running: set[subprocess.Popen[str]] = set()
        for number in range(workers):
            self.copies.put(copy_checkout(folder / str(number)))

    def try_mutant(self, number: int, mutant: Mutant, whole: bool) -> Outcome:
        """Put one fault in, ask its tests and then perhaps all, and take it out."""
        copy, start = self.copies.get(), time.monotonic()
        try:
            with put_in(mutant, copy, number):
                killers = self.find_failures(copy, ["-x", *mutant.tests], SECONDS["named"])
                if not killers and whole:
                    killers = self.find_failures(copy, ["-x"], SECONDS["whole"])
            return Outcome(mutant, killers[0] if killers else "", time.monotonic() - start)
        finally:
            self.copies.put(copy)

    def find_failures(self, copy: Path, arguments: Sequence[str], seconds: float) -> list[str]:
        """Names of the tests that fail, in the order of pytest's summary."""
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:xdist"]
        command += ["--basetemp", str(copy.with_name(f"{copy.name}.tmp"))]
        command += [*(["-m", self.markers] if self.markers else []), *arguments]
        child = subprocess.Popen(
            command,
            cwd=copy,
            env=environment_of(copy),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.running.add(child)
        try:
            text, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return [SLOW]
        finally:
            self.running.discard(child)
            stop(child)
        if child.returncode == WRONG_CALL:
            raise SystemExit(f"pytest could not be asked for {' '.join(arguments)}:\n{text[-2000:]}")
        if child.returncode in (0, NO_TESTS):
            return []
        return FAILED.findall(text) or [f"pytest ended with {child.returncode}"]

    def find_broken(self, killers: Sequence[str]) -> set[str]:
        """Those of these tests that fail without any fault."""
        known = sorted({k for k in killers if k.startswith("tests/")})
        return set(self.find_failures(self.copies.get(), known, SECONDS["whole"])) if known else set()


def stop(child: subprocess.Popen[str]) -> None:
    """End a process that is still running, with all that it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def environment_of(copy: Path) -> Mapping[str, str]:
    """Variables under which the copy is what Python imports, and each process computes on one thread."""
    return os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}


def copy_checkout(copy: Path) -> Path:
    """Copy all files that git tracks or does not ignore; raises SystemExit where Python imports others."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    show = [sys.executable, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"]
    shown = subprocess.check_output(show, cwd=copy, env=environment_of(copy), text=True).strip()
    if not Path(shown).resolve().is_relative_to(copy.resolve()):
        raise SystemExit(f"{PACKAGE} is imported from {shown}, and not from the copy {copy}")
    return copy


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault; may be given again")
    parser.add_argument("--whole", action="store_true", help="all tests for those that their own do not notice")
    parser.add_argument("--markers", default=MARKERS, metavar="EXPRESSION", help="as pytest's -m")
    parser.add_argument("--workers", type=int, default=2, metavar="COUNT", help="faults tried side by side")
    return parser.parse_args()


def choose_mutants(names: Sequence[str] | None) -> list[Mutant]:
    """The faults of these names, or all; raises SystemExit for a name that there is not."""
    mutants = read_mutants()
    if unknown := set(names or ()) - {m.name for m in mutants}:
        raise SystemExit(f"no fault is called {sorted(unknown)[0]!r}; tests/mutants/mutants.yaml lists them")
    return [m for m in mutants if not names or m.name in names]


def main() -> int:
    arguments = read_arguments()
    mutants = choose_mutants(arguments.only)
    lock, outcomes = Lock(), list[Outcome]()

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(Path(folder), arguments.workers, arguments.markers)

        def try_one(pair: tuple[int, Mutant]) -> None:
            outcome = runner.try_mutant(*pair, arguments.whole)
            with lock:
                outcomes.append(outcome)
                text = f"killed by {outcome.killer}" if outcome.killer else "survived"
                count = f"{len(outcomes):>3} of {len(mutants)}"
                print(f"{count}  {outcome.mutant.name}: {text} ({outcome.seconds:.0f} s)", flush=True)

        try:
            with ThreadPoolExecutor(arguments.workers) as pool:
                list(pool.map(try_one, enumerate(mutants)))
        except BaseException:
            for child in list(runner.running):
                stop(child)
            raise
        broken = runner.find_broken([o.killer for o in outcomes])

    for name in sorted(broken):
        print(f"fails without any fault, and so notices none: {name}")
    survivors = [o.mutant.name for o in outcomes if not o.killer or o.killer in broken]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"killed {len(mutants) - len(survivors)} of {len(mutants)}, survived: {'; '.join(survivors) or 'none'}")
    print(f"{used.ru_utime + used.ru_stime:.0f} seconds of CPU time")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
