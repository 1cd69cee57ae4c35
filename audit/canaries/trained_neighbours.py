"""Replay of a whole local training on neighbouring data: what one example really moves an update by.

Cebere et al. 2026, arXiv:2602.17454, for claims per record about an update that was clipped as a whole: a
client trains twice on the same named streams, once with one example replaced, and both updates go
through the protections under the same noise. How far apart they leave the wire is a lower bound on the
sensitivity, without statistics; above the declared one it refutes the claim with certainty. (A claim
of 2 L / m for a mean of m clipped examples does not hold for several steps of batches: a flipped label
moved a small network by 11 times that.)

Neighbours tried: another label, a black and a white image, another client's example. Under
add-or-remove a replacement is two changes, so half of its distance counts.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedaudit.audit.canaries.neighbours import TOLERANCE
from fedaudit.audit.canaries.residuals import Check, Floats
from fedaudit.audit.controls.lab import Lab
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Payload

CLIENTS, EXAMPLES = 2, 2  # replayed, and examples of each that are replaced


def updates(lab: Lab, kind: Kind, train: Arrays, client: int) -> Floats:
    """[d] what leaves the wire of a client's first round, with these training data.

    Every call draws the same batches and the same noise. Raises UserError where the method's clients
    need more than the initial model.
    """
    lab = lab.holding(data=dataclasses.replace(lab.holdings.data, train=train))
    start = {Kind.GLOBAL_MODEL: lab.initial}
    sent = lab.sent(client, 0, lab.trained(client, 0, start).message, start)
    return _flat(sent[kind]) if sent is not None else np.zeros(0)


def neighbours(holdings: Holdings, client: int) -> Iterator[Arrays]:
    """The training data with one example of the client replaced."""
    train, own = holdings.data.train, holdings.parts[client]
    rng = holdings.streams.numpy("training_neighbours", client)
    others = np.setdiff1d(np.arange(len(train)), own)
    for i in rng.permutation(own)[:EXAMPLES]:
        label = train.y.copy()
        label[i] = (label[i] + 1) % len(holdings.data.classes)
        yield dataclasses.replace(train, y=label)
        images = [np.zeros_like(train.x[i]), np.ones_like(train.x[i])]
        if len(others):
            images.append(train.x[rng.choice(others)])
        for image in images:
            x = train.x.copy()
            x[i] = image
            yield dataclasses.replace(train, x=x)


def replay_training(lab: Lab, kind: Kind, said: Release) -> tuple[float, Check]:
    """The measured sensitivity of an update to one example, and whether it is what was declared."""
    parts = lab.holdings.parts
    held: Sequence[int] = [k for k, part in enumerate(parts) if len(part)]
    few = sorted(held, key=lambda k: len(parts[k]))[:CLIENTS]
    measured = 0.0
    for client in few:  # of few examples each counts most
        base = updates(lab, kind, lab.holdings.data.train, client)
        for train in neighbours(lab.holdings, client):
            other = updates(lab, kind, train, client)
            order = 2 if said.mechanism == "gaussian" else 1
            measured = max(measured, float(np.linalg.norm(other - base, order)))
    if said.adjacency == "add_or_remove_one":
        measured /= 2
    limit = said.sensitivity or 0.0
    blur = 1e-6 * said.noise_std * max(1.0, float(len(base))) ** 0.5 if few else 0.0
    return measured, Check(
        name="sensitivity of training by replay",
        passed=measured <= limit * (1 + TOLERANCE) + blur,
        statistic=measured,
        limit=limit,
        text=f"one example replaced moved what a client sends by {measured:.4g}; the ledger says {limit:.4g}",
        failure_rate=0.0,
    )


def _flat(payload: Payload) -> Floats:
    floats = [payload[k].detach().flatten().double() for k in sorted(payload) if payload[k].is_floating_point()]
    return np.asarray(torch.cat(floats).numpy())
