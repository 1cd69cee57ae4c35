"""Where a run computes with `device: auto`: on CUDA, unless the processors are measured to be faster.

Measured once a run and kept in environment.json, where later phases and readers find it. Clients of a few steps
train, on the device as a stack and on the processors one by one: with the run's batches, as training and shadow
models do, and with batches of two, as searches for single examples do. Where both are as fast there, it is
CUDA.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import torch

from fedaudit.attacks.attack import Examples
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.observer.shadows import ShadowTrainer, trainer
from fedaudit.audit.observer.truth import images
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.machine import cores
from fedaudit.fl.runtime.workers import one_thread

CLIENTS, STEPS = 16, 8  # that are timed
FEW, MOST = 2, 100  # examples of a batch
DEVICE, WHY = "computes on", "measured before"  # in environment.json, below the hardware


@dataclass(frozen=True)
class DeviceChoice:
    """Of a run whose config leaves the device open; `accelerator`: what is there beside processors."""

    run: RunDir
    config: Config
    accelerator: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "")

    def settle(self) -> Mapping[str, str]:
        """Where the run computes and why, as kept or as measured now.

        Empty where there is no accelerator, and where nothing that trains is known.
        """
        if not self.accelerator:
            return {}
        there = self.run.environment.exists()
        kept = self.run.read(self.run.environment, Environment).hardware if there else {}
        if kept.get(DEVICE) in ("cpu", self.accelerator):
            return {name: kept[name] for name in (DEVICE, WHY) if name in kept}
        took = self.measure()
        return decide(took, self.accelerator) if took else {}

    def keep(self, settled: Mapping[str, str]) -> Config:
        """The config with that device, which environment.json names from now on."""
        if not settled:
            return self.config
        made_with = self.run.read(self.run.environment, Environment)
        if not settled.items() <= made_with.hardware.items():
            said = made_with.model_dump() | {"hardware": {**made_with.hardware, **settled}}
            self.run.write_json(self.run.environment, said)
        return self.config.model_copy(update={"device": settled[DEVICE]})

    def measure(self) -> dict[int, tuple[float, float]]:
        """Examples of a batch -> seconds on the accelerator and on all processors, measured now.

        Empty where the network, its training or examples are not known.
        """
        case = open_case(self.run, self.config)
        make, training = case.network.make, case.training
        if make is None or training is None or not len(case.data.train):
            return {}
        took = {}
        for batch in sorted({FEW, max(FEW, min(MOST, training.batch_size))}):
            settings = replace(training, batch_size=batch)
            here, there = (trainer(make, settings, case.data, device) for device in ("cpu", self.accelerator))
            assert here is not None and there is not None, "the network and its training are known"
            examples = images(case.data, np.arange(batch * STEPS) % len(case.data.train))
            try:
                _train(there, examples, CLIENTS)  # kernels are loaded and chosen in the first
                seconds = _train(there, examples, CLIENTS)
            except RuntimeError:  # no memory for them, or an operation that it has not
                seconds = inf
            took[batch] = seconds, _train(here, examples, 1) * CLIENTS / cores()
        return took


def decide(took: Mapping[int, tuple[float, float]], accelerator: str) -> dict[str, str]:
    """Where it is faster, of what `measure` gives, and why."""
    is_faster = all(device <= processors for device, processors in took.values())
    said = (
        f"with batches of {batch} {f'{device:.2g} s' if device < inf else 'not at all'} on {accelerator}, "
        f"{processors:.2g} s on the processors"
        for batch, (device, processors) in took.items()
    )
    why = f"{CLIENTS} clients trained {STEPS} steps {'; '.join(said)}"
    return {DEVICE: accelerator if is_faster else "cpu", WHY: why}


def _train(trains: ShadowTrainer, examples: Examples, clients: int) -> float:
    """Seconds in which so many clients train on these examples."""
    with one_thread(), torch.random.fork_rng(devices=[]):
        began = time.perf_counter()
        # its answers are read here
        trains(examples, [np.arange(len(examples))] * clients, examples.x[:FEW], epochs=1, seed=0)
        return time.perf_counter() - began
