"""SIGKILL at random moments of whole audits, which then go on: python -m tests.audit.phases.kills --count 100

Eight configs: a relay, an asynchronous server, control variates, condensed images, a matrix of attacks and rules,
two worker processes, two ranks of torchrun, and noise that is audited. Each is run whole once. Then it is run,
killed at a moment drawn from the time that it takes, and run again until it ends; every file must be what the
undisturbed run left. Every second kill takes the whole process group with it, the others the command alone, as a
system does that is short of memory.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedaudit.audit.cli.main import app
from tests.audit.phases.left import left
from tests.audit.tiny import VERDICTS
from tests.fl.test_all_methods import light

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
# Workers of a killed command may need a moment to be gone with it. What ranks say breaks into one another.
LOCKED = "error: another"
PATIENCE = 600.0


def config(method: str, *attacks: str, workers: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "federation": {
            "dataset": "digits",
            "clients": 6,
            "partition": {"name": "dirichlet", "alpha": 0.5},
            "availability": {"name": "uniform", "count": 4},
            "model": {"name": "mlp", "hidden": [8]},
            "holdout": {"reference": 0.3, "auxiliary": 0.2},
        },
        "method": {"name": method, **light(method, rounds=6, lr=0.1)},
        "record": "all",
        "workers": workers,
        "attacks": list(attacks),
        "noise_audit": False,
        "report": ["json"],
    } | more


MATRIX = {"adversaries": ["sign_flip"], "aggregators": ["median"], "malicious": [0, 1]}
CONFIGS = {
    "relay": config("gandalf", "example_numbers"),
    "asynchronous": config("fedasync", "label_counts_from_update"),
    "scaffold": config("scaffold", "label_counts_from_update"),
    "condensed": config("feddc_condense", "condensed_class"),
    "matrix": config("fedavg", matrix=MATRIX),
    "two workers": config("rebafl", "count_recovery", "example_numbers", workers=2),
    "torchrun": config("fedavg", "label_counts_from_update"),
    "noise": config("fedavg", protections=["dp_gaussian"], noise_audit=True),
}


@dataclass
class Tally:
    """Of one config."""

    kills: int = 0
    passes: int = 0  # runs that ended after their kills
    different: tuple[str, ...] = ()  # files that then were not the same
    failed: str = ""  # what a command said that ended in an error


class Failed(Exception):
    """A command ended in an error of its own."""


def attempt(path: Path, out: Path, seconds: float = PATIENCE, *, group: bool = False, ranks: int = 0) -> bool:
    """Runs the config; True where it ended before the kill. Raises Failed with what an error said.

    With `ranks`, so many processes of torchrun train, and the rest follows in one.
    """
    said = path.with_suffix(".log")
    child = os.fork()
    if not child:
        os.setsid()
        with said.open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                if ranks:
                    simulate = ["-m", "fedaudit", "run", str(path), "--phase", "simulate", "--out", str(out)]
                    command = [*TORCHRUN, str(ranks), *simulate]
                    if subprocess.run([*command, "--workers", "torchrun"]).returncode:
                        os._exit(9)
                app(["run", str(path), "--out", str(out)])
            except SystemExit as end:
                sys.stdout.flush()
                os._exit(int(end.code or 0))
            os._exit(9)
    end, status = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        (os.killpg if group else os.kill)(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if (code := os.WEXITSTATUS(status)) not in VERDICTS:
        raise Failed(f"exit code {code}: {said.read_text()}")
    return True


def patient(path: Path, out: Path, seconds: float, *, group: bool, ranks: int = 0) -> bool:
    """As `attempt`; waits where the workers of the killed command still hold the folder."""
    for _ in range(100):
        try:
            return attempt(path, out, seconds, group=group, ranks=ranks)
        except Failed as error:
            if LOCKED not in str(error):
                raise
            time.sleep(0.2)
    raise Failed(f"{out} stays locked after its command was killed")


def kills(settings: dict[str, Any], count: int, folder: Path, rng: random.Random, ranks: int = 0) -> Tally:
    """So many kills of one config, in as many runs as it takes."""
    path, tally = folder / "config.yaml", Tally()
    path.write_text(json.dumps(settings))  # which is YAML
    began = time.monotonic()
    try:
        attempt(path, folder / "whole", ranks=ranks)
        took, whole = time.monotonic() - began, left(folder / "whole")
        while tally.kills < count or (folder / "killed").exists():
            seconds = rng.uniform(0, took) if tally.kills < count else PATIENCE
            if not patient(path, folder / "killed", seconds, group=tally.kills % 2 == 1, ranks=ranks):
                tally.kills += (folder / "killed").exists()  # before there is a folder nothing is interrupted
                continue
            found = left(folder / "killed")
            other = (f for f in {**whole, **found} if whole.get(f) != found.get(f))
            tally.passes, tally.different = tally.passes + 1, (*tally.different, *other)
            shutil.rmtree(folder / "killed")
    except Failed as error:
        tally.failed = str(error)[-600:]
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=100, help="kills, spread over the configs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CONFIGS, action="append", help="configs; else all")
    stated = parser.parse_args()
    bad = False
    for place, (name, settings) in enumerate(CONFIGS.items()):
        if stated.only and name not in stated.only:
            continue
        share = (stated.count + place) // len(CONFIGS)
        with TemporaryDirectory() as folder:
            ranks = 2 if name == "torchrun" else 0
            tally = kills(settings, share, Path(folder), random.Random(stated.seed + place), ranks)
        bad = bad or bool(tally.failed or tally.different)
        print(f"{name:14} {tally.kills:4} kills, {tally.passes:3} runs ended, ", end="")
        print(
            tally.failed or (f"other bytes: {tally.different}" if tally.different else "same bytes"), flush=True
        )
    sys.exit(bad)


if __name__ == "__main__":
    main()
