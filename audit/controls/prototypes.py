"""Replays: what a client would have sent if its class had n samples, made with its own model.

A federation seldom sends prototypes of every size, and an attack that finds nothing proves nothing
unless it is seen to work where a leak is certain. The auditor therefore recomputes prototypes over n
of a client's own training images with the very model that client uploaded, through the same
protections. n = 1 is the planted leak; the larger n give the curve of leakage against n.
Replayed artifacts are marked as such everywhere.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from audit.controls.lab import Lab, Replays, received
from audit.observer.models import KnownArchitecture
from audit.settings.config import Replay
from audit.subject.case import Case
from fl.artifact import Artifact
from fl.kinds import Kind
from fl.protection import Message
from fl.streams import Streams


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed local_prototypes of every size in settings.sizes, from the latest uploads.

    Groups of a size are drawn at random, spread over settings.clients clients and their classes.
    Empty where the method sends no prototypes, its clients cannot be played, or no model was recorded.
    """
    made, lab = Replays(), Lab.of(case)
    if lab is None or Kind.LOCAL_PROTOTYPES not in case.card.uplink:
        return made
    models = {a.sender.index: a for a in recorded if a.kind == Kind.LOCAL_MODEL}
    with_prototypes = {a.sender.index for a in recorded if a.kind == Kind.LOCAL_PROTOTYPES}
    clients = sorted(k for k in models if k is not None and k in with_prototypes and k in case.parts)
    rng = case.streams.numpy("replay")
    clients = sorted(rng.permutation(clients)[: settings.clients].tolist())
    labels, architecture = case.data.train.y, KnownArchitecture(lab.make, case.data)
    features = {}
    cells = []  # (client, class, indices)
    for k in clients:
        extractor = architecture(models[k].payload)
        index = case.parts[k]
        features[k] = (index, extractor.features(case.data.train.x[index]))
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
            seeded = lab.holding(streams=Streams(case.streams.key("replay", n, i)))
            sent = sent_prototype(seeded, models[k], recorded, label, n, rows.astype(np.float64).mean(0))
            like = replace(models[k], kind=Kind.LOCAL_PROTOTYPES)
            made.add(f"replay/n{n}/{i}", like, sent, group, {"n": n})
    return made


def sent_prototype(
    lab: Lab, model: Artifact, recorded: Sequence[Artifact], label: int, n: int, mean: NDArray[np.float64]
) -> Message | None:
    """What arrives when the sender of `model` sends this one prototype [D] over n of its examples.

    None where it is rejected. `recorded` holds what it had received.
    """
    assert model.sender.index is not None
    classes = torch.tensor([label])
    message: Message = {
        Kind.LOCAL_PROTOTYPES: {"classes": classes, "features": torch.from_numpy(mean[None]).float()},
        Kind.PROTO_COUNTS: {"classes": classes, "counts": torch.tensor([n])},
    }
    return lab.sent(model.sender.index, model.round, message, received(recorded, model))
