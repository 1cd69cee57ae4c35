"""About how long training will take here: one batch is trained and timed, the rest is multiplied.

Counts the plain step of local training, in seconds of the processor, so that a busy machine states the same. A
method that does more in a step (two networks, a frozen pass, DP-SGD) takes longer; a number of answering clients
below the average of the availability takes less. Once, 320 images of 32 x 32 x 3 with ResNet-18 were stated at 9
seconds and took 13 with the tests of accuracy.
"""

import time

import torch

from fedaudit.audit.case.networks import name_model
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings import index
from fedaudit.fl.model import initialise
from fedaudit.fl.runtime.eager import eager

STEPS = 2  # that are timed at least, after one that is not
SECONDS = 0.02  # that are timed at least: the processor's clock may not see a step of a small network


def training_seconds(case: SimulatedCase) -> float:
    """Seconds of one core for all rounds, were everybody to answer in each; 0 for a method without rounds."""
    settings = case.training
    if not settings.local_epochs or not settings.rounds:
        return 0.0
    examples = sum(map(len, case.examples.parts.values()))
    return _time_example(case) * examples * settings.local_epochs * settings.rounds


def _time_example(case: SimulatedCase) -> float:
    """Seconds of one step for one example; of a model of ours as measured here before, where it was."""
    key = name_model(case.make_net)
    kept = index.recall("pace", f"{key} {case.training.batch_size}") if key else None
    if isinstance(kept, float):
        return kept
    each = _train_batch(case)
    if key:
        index.keep("pace", f"{key} {case.training.batch_size}", each)
    return each


def _train_batch(case: SimulatedCase) -> float:
    """Seconds of one step for one example, by a batch that is trained now."""
    net = initialise(case.make_net, case.streams)
    mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (case.data.mean, case.data.std))
    batch = case.data.train.take(
        next(part for part in case.examples.parts.values() if len(part))[: case.training.batch_size]
    )
    x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
    x = x if x.dtype == torch.int64 else (x - mean) / std
    optimiser = eager(torch.optim.SGD)(net.parameters(), lr=0.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps, began = -1, time.process_time()
        while steps < STEPS or time.process_time() - began < SECONDS:
            optimiser.zero_grad()
            torch.autograd.backward(net.loss(x, y))
            optimiser.step()
            steps += 1
            if not steps:
                began = time.process_time()
        each = (time.process_time() - began) / steps / len(y)
    finally:
        torch.set_num_threads(threads)
    return each
