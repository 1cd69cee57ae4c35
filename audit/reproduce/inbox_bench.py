"""How much memory and time a large inbox takes: made up, taken in, checked, and attacked where messages stream.

    python -m audit.reproduce.inbox_bench FOLDER --clients 1000 --rounds 20 --weights 50000

An inbox of as many uploads of one model with that many weights, and its import without truth. Prints seconds
and the largest resident set of this process in each step. 1,000 x 20 x 50,000 is 4 GB, twice that with the run's
own copy.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from audit.phases.bring import bring
from audit.phases.plan import execute
from audit.settings.config import Config
from audit.settings.errors import validate
from audit.subject.inbox import Limits
from audit.subject.recorders.plain import Inbox
from audit.subject.rundir import RunDir

CLASSES, SIDE = 10, 28


def make(folder: Path, clients: int, rounds: int, weights: int) -> None:
    """Every upload is the round's model with noise; the next model is their mean."""
    inbox, rng = Inbox(folder, "made up"), np.random.default_rng(7)
    model = rng.normal(size=weights).astype(np.float32)
    for t in range(rounds + 1):
        inbox.message(t, "downlink", "server", ["client"], {"global_model": {"w": model}})
        total = np.zeros(weights)
        for k in range(clients if t < rounds else 0):
            upload = model + np.float32(0.01) * rng.normal(size=weights).astype(np.float32)
            kinds: dict[str, dict[str, Any]] = {
                "local_model": {"w": upload},
                "num_examples": {"count": np.int64(50)},
            }
            inbox.message(t, "uplink", inbox.client(f"node-{k}"), ["server"], kinds)
            total += upload
        model = (total / max(1, clients)).astype(np.float32)


def _silent(phase: str, done: int, total: int) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--weights", type=int, default=50_000)
    wanted = parser.parse_args()
    inbox, run = wanted.folder / "inbox", RunDir.create(wanted.folder / "run")
    subject = {
        "title": "made up",
        "examples": {"classes": [f"class {c}" for c in range(CLASSES)], "shape": [1, SIDE, SIDE]},
    }
    settings = {"case": "recorded", "subject": subject, "attacks": ["example_numbers"], "report": ["json"]}
    config = validate(Config, settings, "inbox_bench")

    def step(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name}: {time.perf_counter() - began:.0f} s, at most {most:.2f} GiB so far", flush=True)

    if not inbox.exists():
        step("make", lambda: make(inbox, wanted.clients, wanted.rounds, wanted.weights))
    step("import", lambda: bring(run, config, inbox, None, None, inbox, Limits(), False, _silent))
    for phase in ("attack", "account", "score", "report"):
        step(phase, partial(execute, run, config, [phase], _silent, skip_finished=False))


if __name__ == "__main__":
    main()
