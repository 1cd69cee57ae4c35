"""Replays: what a client would have sent if its class had n samples, made with its own model.

A federation seldom sends prototypes of every size, and an attack that finds nothing proves nothing
unless it is seen to work where a leak is certain. The auditor therefore recomputes prototypes over n
of a client's own training images with the very model that client uploaded, through the same
protections. n = 1 is the planted leak; the larger n give the curve of leakage against n.
Replayed artifacts are marked as such everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from audit.observer.models import KnownArchitecture
from audit.subject.simulated import World
from fl.artifact import Array, Artifact, Channel
from fl.kinds import Kind
from fl.protection import Message
from fl.streams import Streams
from fl.tree import to_numpy
from fl.wire import Wire


@dataclass(frozen=True)
class Replays:
    artifacts: list[Artifact]
    groups: dict[str, NDArray[np.int64]]  # artifact id -> indices into data.train

    def __add__(self, other: "Replays") -> "Replays":
        return Replays([*self.artifacts, *other.artifacts], self.groups | other.groups)


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
            # A stream of its own, so that two replays of one client meet different noise
            streams = Streams(world.streams.key("replay", n, i))
            model, mean = models[k], rows.astype(np.float64).mean(0)
            sent = sent_prototype(world, streams, model, recorded, label, n, mean)
            if sent is None:
                continue
            name = f"replay/n{n}/{i}"
            made.groups[name] = group
            made.artifacts.append(
                Artifact(
                    id=name,
                    kind=Kind.LOCAL_PROTOTYPES,
                    channel=Channel.UPLINK,
                    round=model.round,
                    sender=model.sender,
                    seen_by=model.seen_by,
                    payload=sent,
                    origin="replayed",
                    note={"n": n},
                )
            )
    return made


def sent_prototype(
    world: World,
    streams: Streams,
    model: Artifact,
    recorded: Sequence[Artifact],
    label: int,
    n: int,
    mean: NDArray[np.float64],
) -> dict[str, Array] | None:
    """What arrives when the sender of `model` sends this one prototype [D] over n of its examples.

    None where a protection withholds it. `recorded` holds the global prototypes it had received.
    """
    assert model.sender.index is not None
    classes = torch.tensor([label])
    message: Message = {
        Kind.LOCAL_PROTOTYPES: {"classes": classes, "features": torch.from_numpy(mean[None]).float()}
    }
    if Kind.PROTO_COUNTS in world.method.card.uplink:
        message[Kind.PROTO_COUNTS] = {"classes": classes, "counts": torch.tensor([n])}
    received: Message = {}
    for a in recorded:
        if (a.kind, a.round) == (Kind.GLOBAL_PROTOTYPES, model.round):
            received[a.kind] = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
    wire = Wire(world.method.card, streams, world.protections)
    sent = wire.uplink(model.round, message, model.sender.index, received)
    if sent is None or Kind.LOCAL_PROTOTYPES not in sent:
        return None
    return dict(to_numpy(sent[Kind.LOCAL_PROTOTYPES]))
