"""Replayed models: what a client would have uploaded, had it learnt a few wrongly labelled images.

A membership attack that finds nothing in a model trained lightly on many images proves nothing
unless it is seen to work where membership is certain to show. The auditor therefore trains clients
anew on IMAGES of their own images for EPOCHS epochs in small batches: from the recorded global
model, by the method's own client code, and through the same protections. Labels are wrong, at random,
so that only memory can tell them (mislabelled canaries: Aerni, Zhang, Tramer, CCS 2024,
arXiv:2404.17399). Noise that hides members from the attack in a real upload hides them here as well.

Models that clients hand to each other in relays are replayed likewise, each from the one that
its client had been handed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from attacks.models._trials import taught
from attacks.trials.reidentification import fingerprints
from audit.controls.lab import Lab, Replays, received
from audit.settings.config import Replay
from audit.subject.case import Case
from fl.artifact import Artifact
from fl.dataset import Arrays, Data
from fl.kinds import UPDATES, Kind
from fl.partition import Index
from fl.protection import Message
from fl.streams import Streams

IMAGES, EPOCHS, BATCH = 30, 200, 5


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """One replayed upload, and one replayed model of a relay, of each of settings.clients clients.

    `recorded` must hold what the senders had received (every kind on the method's downlink and relay)
    in the same rounds. Empty where the method sends no model, its clients cannot be played, or nothing of
    this was recorded.
    """
    made, lab = Replays(), Lab.of(case)
    if lab is None:
        return made
    rng = case.streams.numpy("replay_models")
    for kinds, prefix in (
        ((*UPDATES, Kind.NORMALIZED_DELTA), "replay/model"),
        ((Kind.RELAY_MODEL,), "replay/relay"),
    ):
        newest = {
            a.sender.index: a
            for a in sorted(recorded, key=lambda a: a.round)
            if a.kind in kinds and a.origin == "recorded" and Kind.GLOBAL_MODEL in _begun(recorded, a)
        }
        clients = rng.permutation(sorted(k for k in newest if k is not None and k in case.parts))
        for client in sorted(clients[: settings.clients].tolist()):
            model, own = newest[client], case.parts[client]
            chosen = np.sort(rng.choice(own, min(IMAGES, len(own)), replace=False))
            streams = Streams(case.streams.key("replay_models", client))
            batch, data = min(BATCH, len(chosen)), _mislabelled(case.data, chosen)
            alone = lab.alone(client, chosen, streams, epochs=EPOCHS, batch=batch, data=data)
            sent = alone.replayed(model, _begun(recorded, model))
            made.add(f"{prefix}/{client}", model, sent, chosen, {"n": len(chosen)})
    return made


def _begun(recorded: Sequence[Artifact], model: Artifact) -> Message:
    """What its sender had received that round; in a relay, the model it was handed is where it began."""
    found = received(recorded, model)
    if model.kind == Kind.RELAY_MODEL:
        handed = [
            a
            for a in recorded
            if a.kind == model.kind and a.round == model.round and str(model.sender) in a.seen_by
        ]
        for a in handed:
            found[Kind.GLOBAL_MODEL] = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
    return found


def _mislabelled(data: Data, chosen: Index) -> Data:
    """The data with labels for the chosen examples that only memory can tell."""
    labels, marks = data.train.y.copy(), fingerprints(data.train.x[chosen])
    labels[chosen] = [taught(m, int(c), len(data.classes)) for m, c in zip(marks, labels[chosen], strict=True)]
    return dataclasses.replace(data, train=Arrays(x=data.train.x, y=labels))
