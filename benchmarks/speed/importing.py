"""How much memory and time a large inbox takes: made up, taken in, checked, and attacked where messages stream.

    python -m benchmarks.speed.importing FOLDER --clients 1000 --rounds 20 --weights 50000

An inbox of as many uploads of one network with about that many weights, and its import with examples of the
auditor's own alone. Some attacks read all rounds, others every client's latest model. Prints seconds and the
largest resident set up to each step. 1,000 x 20 x 50,000 is 4 GB, and as much again with the run's own copy.
"""

import argparse
import io
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime import durable

CLASSES, SIDE, OWN = 10, 28, 1000
ATTACKS = ("example_numbers", "label_counts_from_update", "loss_threshold")
NEEDLESS = ("prototype_difference",)  # would read models of all rounds, had clients sent prototypes as well
Model = Mapping[str, NDArray[np.float32]]


def make(folder: Path, clients: int, rounds: int, hidden: int) -> None:
    """Every upload is the round's model with noise; the next model is their mean."""
    inbox, rng = Inbox(folder, "made up"), np.random.default_rng(7)
    shapes = {"layers.0.weight": (hidden, SIDE * SIDE), "layers.0.bias": (hidden,)}
    shapes |= {"head.weight": (CLASSES, hidden), "head.bias": (CLASSES,)}

    def noise(scale: float) -> Model:
        return {k: np.float32(scale) * rng.standard_normal(s, np.float32) for k, s in shapes.items()}

    model = noise(0.1)
    for t in range(rounds + 1):
        inbox.message(t, "downlink", "server", ["client"], {"global_model": model})
        total = {k: np.zeros(s) for k, s in shapes.items()}
        for k in range(clients if t < rounds else 0):
            upload = {name: model[name] + v for name, v in noise(0.01).items()}
            kinds: dict[str, dict[str, Any]] = {"local_model": upload, "num_examples": {"count": np.int64(50)}}
            inbox.message(t, "uplink", inbox.client(f"node-{k}"), ["server"], kinds)
            for name, v in upload.items():
                total[name] += v
        model = {name: (v / max(1, clients)).astype(np.float32) for name, v in total.items()}


def own(folder: Path) -> Path:
    """Examples of the auditor's own, random."""
    rng = np.random.default_rng(7)
    x = rng.random((OWN, 1, SIDE, SIDE), np.float32)
    data = io.BytesIO()
    np.savez(data, x=x, y=rng.integers(0, CLASSES, OWN))
    durable.write(folder / "own.npz", data.getvalue())
    return folder


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
    hidden = max(1, round(wanted.weights / (SIDE * SIDE + CLASSES + 1)))
    subject = {
        "title": "made up",
        "examples": {"classes": [f"class {c}" for c in range(CLASSES)], "shape": [1, SIDE, SIDE]},
        "model": {"name": "mlp", "hidden": [hidden]},
        "method": {"name": "fedavg", "rounds": wanted.rounds},
    }
    settings = {"subject": subject, "attacks": [*ATTACKS, *NEEDLESS], "report": ["json"]}
    config = validate(Config, settings, "inbox_bench")

    def step(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name}: {time.perf_counter() - began:.0f} s, at most {most:.2f} GiB so far", flush=True)

    if not inbox.exists():
        step("make", lambda: make(inbox, wanted.clients, wanted.rounds, hidden))
    truth = own(wanted.folder / "truth")
    step("import", lambda: bring(run.path, config, ImportSources(inbox=inbox, truth=truth), _silent))
    for phase in ("attack", "account", "score", "report"):
        step(phase, partial(execute, run, config, [phase], _silent, skip_finished=False))


if __name__ == "__main__":
    main()
