"""Shadow models a minute, beside an existing tool: python -m benchmarks.peers.shadow_models.

Trains as many shadow models with audit/observer/shadows.py and with the Adversarial Robustness Toolbox
(adversarial-robustness-toolbox, art.attacks.inference.membership_inference.ShadowModels) on the same
images, with the same model, optimiser, batch size and epochs, each on a random half. The two take
turns on the same machine, and times are wall-clock, so that the ratio means something on a shared one.
Quality is LiRA's AUC, every model being the audited one in turn and all others its shadow models.

The tool is no dependency of this project: run this with the Python of an environment that has both.
Its ShadowModels cannot be told a batch size or a number of epochs and uses 128 and 10; so do we.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.scores import lira_online, scaled_logit
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores, processor_seconds
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.fl.runtime.workers import one_thread, processes

EPOCHS, BATCH = 10, 128  # what PyTorchClassifier.fit does when it is not told otherwise
RATE, MOMENTUM = (0.1, 0.9)  # memorises digits in ten epochs, so that the AUC has something to show
# trains, and leaves what is not timed: logits [K, N, C] and inside [K, N]
Training = Callable[[], Callable[[], tuple[NDArray[Any], NDArray[np.bool_]]]]


@dataclass(frozen=True)
class Speed:
    name: str
    seconds: float  # of training and answering, by the clock
    processor: float  # seconds, over all cores
    models: int
    auc: float

    @property
    def a_minute(self) -> float:
        return 60 * self.models / self.seconds


def compare(dataset: str, model: str, images: int, models: int, workers: int, repeats: int) -> list[Speed]:
    """Ours, then the other tool's: the fastest of `repeats` turns each.

    Raises UserError where the tool is not installed.
    """
    case = _case(dataset, model, workers)
    train = case.data.train
    chosen = case.streams.numpy("images").permutation(len(train))[:images]
    pool = Examples(x=train.x[chosen], y=train.y[chosen])
    other = _toolbox(case, pool, models)
    tools = {"fedaudit": _ours(case, pool, models), "adversarial-robustness-toolbox": other}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tools}
    areas = {}
    for _ in range(repeats):
        for name, run in tools.items():
            started, used = time.perf_counter(), processor_seconds()
            answers = run()
            taken[name].append((time.perf_counter() - started, processor_seconds() - used))
            areas[name] = quality(*answers(), pool.y)
    return [Speed(n, min(w for w, _ in taken[n]), min(c for _, c in taken[n]), models, areas[n]) for n in tools]


def quality(logits: NDArray[Any], inside: NDArray[np.bool_], y: NDArray[np.int64]) -> float:
    """LiRA's AUC, the mean over models, each held against all others."""
    phi = scaled_logit(logits, y)
    found = []
    for k in range(len(phi)):
        rest = np.delete(np.arange(len(phi)), k)
        some = inside[rest].any(axis=0) & ~inside[rest].all(axis=0)
        ins = np.where(inside[rest], phi[rest], np.nan)[:, some]
        outs = np.where(inside[rest], np.nan, phi[rest])[:, some]
        score = lira_online(phi[k, some], ins, outs, shared=True)
        own = inside[k, some]
        found.append(stats.auc(score[own], score[~own], groups=stats.INDEPENDENT).value)
    return float(np.mean(found))


def _case(dataset: str, model: str, workers: int) -> Any:
    from fedaudit.audit.case.simulated import SimulatedCase
    from fedaudit.audit.settings.config import SimulatedConfig
    from fedaudit.audit.settings.spec import PluginSpec

    settings = {"lr": RATE, "momentum": MOMENTUM, "batch_size": BATCH}
    return SimulatedCase(
        SimulatedConfig.model_validate(
            {
                "federation": {"dataset": dataset, "model": model},
                "method": PluginSpec(name="fedavg", settings=settings),
                "workers": workers,
            }
        )
    )


def _ours(case: Any, pool: Examples, models: int) -> Training:
    from fedaudit.attacks.models._shadows import halves
    from fedaudit.audit.observer.shadows import ShadowTrainer

    train = ShadowTrainer(make=case.network.make, data=case.data, config=case.training)

    def run() -> Any:
        inside = halves(len(pool), models, np.random.default_rng(0))
        rows = [np.flatnonzero(r) for r in inside]
        with one_thread(), share_cores(case.config.workers):
            logits = train(pool, rows, pool.x, epochs=EPOCHS, seed=0)
        return lambda: (logits, inside)

    return run


def _toolbox(case: Any, pool: Examples, models: int) -> Training:
    try:
        attacks = importlib.import_module("art.attacks.inference.membership_inference")
        classification = importlib.import_module("art.estimators.classification")
    except ImportError as error:
        raise UserError(
            "the Adversarial Robustness Toolbox is not installed, so there is nothing to compare with",
            hint="in a separate environment: pip install adversarial-robustness-toolbox, then run "
            "this with its Python",
        ) from error
    import torch

    from fedaudit.attacks.modality.images import fingerprints
    from fedaudit.audit.observer.models import Runner

    where = {m: i for i, m in enumerate(fingerprints(pool.x))}

    def run() -> Any:
        net = Runner(case.network.make(), case.data)
        template = classification.PyTorchClassifier(
            model=net,
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM),
            input_shape=pool.x.shape[1:],
            nb_classes=len(case.data.classes),
            device_type="cpu",
        )
        found = attacks.ShadowModels(template, num_shadow_models=models, random_state=0)
        # trains, and answers for every image; the answers come back in another order
        found.generate_shadow_dataset(pool.x, np.eye(len(case.data.classes))[pool.y])
        return lambda: answers(found)

    def answers(found: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        logits = np.stack([m.predict(pool.x) for m in found.get_shadow_models()])
        inside = np.zeros((models, len(pool)), bool)
        for k, (x, _) in enumerate(found.get_shadow_models_train_sets()):
            inside[k, [where[m] for m in fingerprints(x)]] = True
        return logits, inside

    return run


def main() -> int:
    """Prints both speeds, their ratio and the load; 2 where there is nothing to compare with."""
    parser = argparse.ArgumentParser(description="Shadow models a minute, beside an existing tool.")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--workers", type=int, default=processes("auto", "cpu"))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    try:
        found = compare(**vars(arguments))
    except UserError as error:
        print(f"{error.args[0]}\n  hint: {error.hint}", file=sys.stderr)
        return 2
    for s in found:
        print(
            f"{s.name:32} {s.a_minute:8.1f} models a minute, {s.processor / s.models:6.2f} processor "
            f"seconds a model, LiRA AUC {s.auc:.3f}"
        )
    ours, theirs = found
    print(
        f"ratio {ours.a_minute / theirs.a_minute:.2f} by the clock, "
        f"{theirs.processor / ours.processor:.2f} by processor time; {cores()} cores, load "
        f"average {os.getloadavg()[0]:.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
