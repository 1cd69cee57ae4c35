"""Replayed averages: what a client sends for a single image of its own, made by the method's own code.

Clients of FedMix send means of groups of their examples before the rounds, and those of data sharing some of
their examples as they are. The auditor has every client do so once more, owning a single image: the planted leak,
through the run's protections and, where there are any, once more without.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.controls.effort import PlayedClients, count_reading
from fedaudit.audit.controls.lab import EACH, Lab, Replays, name_replay
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message

WORK = {Kind.MASHED_BATCH: "mash", Kind.SEED_SAMPLES: "contribute"}  # the clients' function that makes them


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, of these clients, about."""
    return count_reading(clients.origins * sum(min(EACH, n) for n in clients.sizes), 1)


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:  # noqa: ARG001
    """Replayed mashed_batch, or seed_samples, of EACH single images of every client that sent any.

    Empty where a function of another name makes what they sent.
    """
    made, seeds, data = Replays(), lab.holdings.streams, lab.holdings.data
    uploads = [
        a for a in index(recorded) if a.kind in WORK and a.origin == "recorded" and a.sender.index in lab.owned
    ]
    latest = {a.sender.index: a for a in uploads if a.sender.index is not None}
    if not all(hasattr(lab.method, WORK[a.kind]) for a in uploads):
        return made
    rng = seeds.numpy("replay_averages")
    for client, like in sorted(latest.items()):
        for i, row in enumerate(rng.permutation(lab.owned[client])[:EACH].tolist()):
            chosen = np.array([row])
            for origin, bench in lab.with_and_without():
                streams = Streams(seeds.key("replay_averages", client, i))
                alone = bench.alone(client, chosen, streams, epochs=0, batch=1)
                sent = _send(alone, like, _ask_for(like.kind, int(data.train.y[row]), len(data.classes)))
                made.add(
                    name_replay(f"replay/average/{client}.{i}", origin), like, sent, chosen, {"n": 1}, origin
                )
    return made


def _ask_for(kind: Kind, label: int, classes: int) -> Message:
    """What a client is sent before: how many examples of each class it is to give."""
    wanted = torch.nn.functional.one_hot(torch.tensor(label), classes)
    return {Kind.ALLOCATION: {"counts": wanted}} if kind == Kind.SEED_SAMPLES else {}


def _send(alone: Lab, like: Artifact, received: Message) -> Message | None:
    """What arrives of a client that owns the one image."""
    client = like.sender.number
    reply = alone.begin(like.round, {}).work((WORK[like.kind], (client, {}, received)))
    return alone.send(client, like.round, reply.message, received)
