"""About how long training takes here, for a run and for planted leaks: a batch is timed, the rest is multiplied.

Counts the plain step of local training, in seconds of the processor, so that a busy machine states the same. A
method that does more in a step (two networks, a frozen pass) takes longer; a number of answering clients
below the average of the availability takes less. Once, 320 images of 32 x 32 x 3 with ResNet-18 were stated at 9
seconds and took 13 with the tests of accuracy.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import numpy as np
import torch

from fedaudit.attacks.attack import Card
from fedaudit.audit.case.case import KnownFederation
from fedaudit.audit.case.networks import name_model
from fedaudit.audit.controls.control import Control, load_control
from fedaudit.audit.controls.effort import VISITS, PlayedClients
from fedaudit.audit.planning.efforts import CONTROL, measure_machine, recall_error
from fedaudit.audit.settings import index
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.model import Net, initialise
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.records import check_returned
from fedaudit.fl.runtime.workers import one_thread

STEPS = 2  # that are timed at least, after one that is not
VISIT = 0.002  # seconds beside the training, on the machine of the cards; of an upload 4, of a prototype 1 to 2
FEW, SLOW = 32, 0.1  # examples, and seconds of a step on them that is all arithmetic
MOST = 500  # examples of a step that is timed, which must fit memory
# Of DP-SGD: plain steps that the gradients of single examples take as long as, and seconds of a step beside them
# and of the noise on a number, on the machine of the cards. Four networks took 0.6 to 2.1 times as long
PRIVATE_GRADIENTS, PRIVATE_STEP, PRIVATE_NUMBER = 1.5, 0.005, 2e-8
SECONDS = 0.02  # that are timed at least: the processor's clock may not see a step of a small network


def training_seconds(
    federation: KnownFederation, settings: LocalConfig, make_net: "partial[Net]", parameters: int
) -> float:
    """Seconds of one core for all rounds, were everybody to answer in each; 0 for a method without rounds.

    A protection that acts in training says how long clients train, in the place of the method's epochs.
    """
    private, size = federation.private, settings.batch_size
    epochs: float = settings.local_epochs if private is None else private.steps * private.sample_rate
    if not epochs or not settings.rounds:
        return 0.0
    parts = [part for part in federation.examples.parts.values() if len(part)]
    each = measure_step(federation, make_net, np.concatenate(parts), size) / size
    seconds = each * sum(map(len, parts)) * epochs
    if private is not None:
        beside = len(parts) * private.steps * (PRIVATE_STEP + PRIVATE_NUMBER * parameters)
        seconds = PRIVATE_GRADIENTS * seconds + beside * measure_machine()
    return seconds * settings.rounds


def list_played(cards: Iterable[Card]) -> set[str]:
    """The controls that clients are played for beside these attacks."""
    return {card.control for card in cards if card.control}


def estimate_controls(
    names: Collection[str],
    federation: KnownFederation,
    training: LocalConfig | None,
    make_net: Callable[[], Net] | None,
    settings: Replay,
    parameters: int,
) -> dict[str, float]:
    """Seconds of the processor that clients are played for these (`list_played`), as far as they can be.

    By the steps that a control counts.
    """
    examples = federation.examples
    if training is None or not isinstance(make_net, partial):
        return {}
    rows = np.concatenate([examples.planted, *examples.parts.values()])
    clients = PlayedClients.of(federation, parameters)
    found = {}
    for name in sorted(filter(None, names)):
        steps = load_control(name).count_steps(clients, settings, training)
        check_returned(name, Control, "count_steps", steps)
        found[name] = steps.get(VISITS, 0) * VISIT * measure_machine() + sum(
            number * measure_step(federation, make_net, rows, size)
            for size, number in steps.items()
            if number and size != VISITS
        )
    return found


def correct_controls(setup: str, seconds: Mapping[str, float]) -> dict[str, float]:
    """The same by what planting them took on this setup before (`AttackChoice.setup`)."""
    return {name: s * (recall_error(setup, CONTROL + name) or 1.0) for name, s in seconds.items()}


def measure_step(federation: KnownFederation, make_net: "partial[Net]", rows: Index, size: int) -> float:
    """Seconds of one step on a batch of so many examples, by one on the first rows; kept for a model of ours.

    Two of them at least, since normalisation over one value has no variance. Where a few examples take long
    already, more of them take as many times as long.
    """
    rows = rows[: max(2, size)]
    key = name_model(make_net)
    each = index.recall("pace", f"{key} {size}") if key else None
    if not isinstance(each, float):
        with one_thread():  # a second one would wait, spinning, and count as well
            net, data = initialise(make_net, federation.streams), federation.data
            each = _train_batch(net, data, rows[:FEW])
            if len(rows) > FEW and each * FEW < SLOW:
                each = _train_batch(net, data, rows[:MOST])
        if key:
            index.keep("pace", f"{key} {size}", each)
    return each * size


def _train_batch(net: Net, data: Data, rows: Index) -> float:
    """Seconds of one step for one example, by a batch that is trained now."""
    batch = data.train.take(rows)
    x, y = normalise(torch.from_numpy(batch.x), data), torch.from_numpy(batch.y)
    optimiser = eager(torch.optim.SGD)(net.parameters(), lr=0.0)
    steps, began = -1, time.process_time()
    while steps < STEPS or time.process_time() - began < SECONDS:
        optimiser.zero_grad()
        torch.autograd.backward(net.loss(x, y))
        optimiser.step()
        steps += 1
        if not steps:
            began = time.process_time()
    return (time.process_time() - began) / steps / len(y)
