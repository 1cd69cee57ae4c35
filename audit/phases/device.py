"""Where a run computes with `device: auto`: on CUDA, unless the processors are measured to be faster.

Measured once a run and kept in environment.json, where later phases and readers find it. Clients of a few steps
train, on the device as a stack and on the processors one by one: with the run's batches, as training and shadow
models do, and with batches of two, as searches for single examples do. Where both are as fast there, it is
CUDA.
"""

import dataclasses
import time
from collections.abc import Mapping

import numpy as np
import torch

from fedaudit.audit.case.case import Case
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


def settle_device(run: RunDir, config: Config, accelerator: str = "") -> Mapping[str, str]:
    """Where this run computes and why, as kept or as measured now; `accelerator`: CUDA by default.

    Empty where a device was asked for, where there is no accelerator, and where nothing that trains is known.
    """
    accelerator = accelerator or ("cuda" if torch.cuda.is_available() else "")
    if config.device != "auto" or not accelerator:
        return {}
    kept = run.read(run.environment, Environment).hardware if run.environment.exists() else {}
    if kept.get(DEVICE) in ("cpu", accelerator):
        return {name: kept[name] for name in (DEVICE, WHY) if name in kept}
    took = measure_seconds(open_case(run, config), accelerator)
    return decide(took, accelerator) if took else {}


def keep_device(run: RunDir, config: Config, settled: Mapping[str, str]) -> Config:
    """The config with that device, which environment.json names from now on."""
    if not settled:
        return config
    made_with = run.read(run.environment, Environment)
    if not settled.items() <= made_with.hardware.items():
        run.write_json(run.environment, made_with.model_dump() | {"hardware": {**made_with.hardware, **settled}})
    return config.model_copy(update={"device": settled[DEVICE]})


def decide(took: Mapping[int, tuple[float, float]], accelerator: str) -> dict[str, str]:
    """Of examples of a batch -> seconds on the accelerator and on all processors."""
    is_faster = all(device <= processors for device, processors in took.values())
    said = (
        f"with batches of {batch} {device:.2g} s on {accelerator}, {processors:.2g} s on the processors"
        for batch, (device, processors) in took.items()
    )
    why = f"{CLIENTS} clients trained {STEPS} steps {'; '.join(said)}"
    return {DEVICE: accelerator if is_faster else "cpu", WHY: why}


def measure_seconds(case: Case, accelerator: str) -> dict[int, tuple[float, float]]:
    """The same, as measured now; empty where the network, its training or examples are not known."""
    make, training = case.network.make, case.training
    if make is None or training is None or not len(case.data.train):
        return {}
    took = {}
    for batch in sorted({FEW, max(FEW, min(MOST, training.batch_size))}):
        settings = dataclasses.replace(training, batch_size=batch)
        here, there = (trainer(make, settings, case.data, device) for device in ("cpu", accelerator))
        assert here is not None and there is not None, "the network and its training are known"
        _train(there, case, batch, CLIENTS)  # kernels are loaded and chosen in the first
        took[batch] = (_train(there, case, batch, CLIENTS), _train(here, case, batch, 1) * CLIENTS / cores())
    return took


def _train(trains: ShadowTrainer, case: Case, batch: int, clients: int) -> float:
    """Seconds in which so many clients take a few steps with such batches."""
    rows = np.arange(batch * STEPS)
    examples = images(case.data, rows % len(case.data.train))
    with one_thread(), torch.random.fork_rng(devices=[]):
        began = time.perf_counter()
        trains(examples, [rows] * clients, examples.x[:FEW], epochs=1, seed=0)  # its answers are read here
        return time.perf_counter() - began
