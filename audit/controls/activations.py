"""Replayed activations: what a client would have sent of one of its images alone.

An attack that inverts no activation of a recorded batch proves nothing unless it is seen to work on one whose
image is known. Clients send single images of theirs through the layers that their newest batches began with, by
their own code, with the run's protections and without.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.batch_readings import find_layers
from fedaudit.audit.controls.effort import PlayedClients, count_reading
from fedaudit.audit.controls.lab import EACH, Lab, Replays, name_replay
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, of these clients, about."""
    return count_reading(clients.origins * sum(min(EACH, n) for n in clients.sizes), 1)


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:  # noqa: ARG001
    """Replayed smashed, of EACH single images of every client whose first layers were recorded."""
    made, recorded, seeds = Replays(), index(recorded), lab.holdings.streams
    sent = recorded.select(kind=Kind.SMASHED, channel=Channel.UPLINK, origin="recorded")
    latest = {a.sender.index: a for a in sorted(sent, key=lambda a: a.round) if a.sender.index is not None}
    rng = seeds.numpy("replay_activations")
    for client, like in sorted(latest.items()):
        layers, _ = find_layers(recorded, like)
        if client not in lab.owned or layers is None:
            continue
        received = {Kind.GLOBAL_MODEL: {k: torch.from_numpy(np.array(v)) for k, v in layers.payload.items()}}
        for i, row in enumerate(rng.permutation(lab.owned[client])[:EACH].tolist()):
            chosen = np.array([row])
            for origin, bench in lab.with_and_without():
                streams = Streams(seeds.key("replay_activations", client, i))
                alone = bench.alone(client, chosen, streams, epochs=0, batch=1)
                arrived = alone.replay(like, received)
                made.add(
                    name_replay(f"replay/activations/{client}.{i}", origin),
                    like,
                    arrived,
                    chosen,
                    {"n": 1},
                    origin,
                )
    return made
