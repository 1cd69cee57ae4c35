"""Replays: what a client would have sent if its class had n samples, made with its own model.

A federation seldom sends prototypes of every size, and an attack that finds nothing proves nothing
unless it is seen to work where a leak is certain. The auditor therefore recomputes prototypes over n
of a client's own training pictures with the very model that client uploaded, through the same
protections. n = 1 is the planted leak; the larger n give the curve of leakage against n.
Replayed artifacts are marked as such everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from audit.extractor import KnownArchitecture
from audit.world import World
from fl.artifact import Artifact, Channel, Kind
from fl.protection import Message
from fl.streams import Streams
from fl.tree import to_numpy
from fl.wire import Wire


@dataclass(frozen=True)
class Replays:
    artifacts: list[Artifact]
    groups: dict[str, NDArray[np.int64]]  # artifact id -> indices into data.train


def replay_prototypes(world: World, recorded: Sequence[Artifact]) -> Replays:
    """Replayed local_prototypes of every size in config.replay.sizes, from the latest uploads.

    Groups of a size are drawn at random, spread over config.replay.clients clients and their classes.
    Empty where the method sends no prototypes or no model was recorded.
    """
    settings, made = world.config.replay, Replays([], {})
    if Kind.LOCAL_PROTOTYPES not in world.method.card.uplink:
        return made
    models = {a.sender.index: a for a in recorded if a.kind == Kind.LOCAL_MODEL}
    with_prototypes = {a.sender.index for a in recorded if a.kind == Kind.LOCAL_PROTOTYPES}
    clients = sorted(k for k in models if k is not None and k in with_prototypes)
    rng = world.streams.numpy("replay")
    clients = sorted(rng.permutation(clients)[: settings.clients].tolist())
    labels, architecture = world.data.train.y, KnownArchitecture(world.make_net, world.data)
    features = {}
    cells = []  # (client, class, indices)
    for k in clients:
        extractor = architecture(models[k].payload)
        index = world.population.parts[k]
        features[k] = (index, extractor.features(world.data.train.x[index]))
        cells += [(k, int(c), index[labels[index] == c]) for c in np.unique(labels[index])]
    for n in settings.sizes:
        possible = [cell for cell in cells if len(cell[2]) >= n]
        # A cell with exactly n examples has one group of that size, however often it is drawn
        wanted = settings.groups if any(len(c[2]) > n for c in possible) else len(possible)
        for i in range(wanted if possible else 0):
            k, label, members = possible[i % len(possible)]
            group = np.sort(rng.choice(members, n, replace=False))
            index, all_features = features[k]
            rows = all_features[np.isin(index, group)]
            message: Message = {
                Kind.LOCAL_PROTOTYPES: {
                    "classes": torch.tensor([label]),
                    "features": torch.from_numpy(rows.astype(np.float64).mean(0)[None]).float(),
                }
            }
            model = models[k]
            # A stream of its own, so that two replays of one client meet different noise
            streams = Streams(world.streams.key("replay", n, i))
            wire = Wire(world.method.card, streams, world.protections)
            sent = wire.uplink(model.round, message, k, {})
            if sent is None:
                continue
            name = f"replay/n{n}/{i}"
            made.groups[name] = group
            made.artifacts.append(
                Artifact(
                    id=name, kind=Kind.LOCAL_PROTOTYPES, channel=Channel.UPLINK, round=model.round,
                    sender=model.sender, seen_by=model.seen_by,
                    payload=to_numpy(sent[Kind.LOCAL_PROTOTYPES]), origin="replayed", note={"n": n},
                )
            )  # fmt: skip
    return made
