"""Replays: what a client would have sent if its class had n samples, made with its own model.

A federation seldom sends prototypes of every size, and an attack that finds nothing proves nothing
unless it is seen to work where a leak is certain. So the client is played once more (audit/controls/lab.py): it
starts from the very model it uploaded, trains no further, owns n of its images of one class and one image of each
of its other classes, and sends what the method's own code makes of them, through the run's protections. Of what
arrives, the prototype of the one class is kept. n = 1 is the planted leak; the larger n give the curve of leakage
against n. Replayed artifacts are marked as such everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from audit.controls.lab import Lab, Replays, received
from audit.settings.config import Replay
from audit.subject.case import Case
from fl.artifact import Artifact
from fl.kinds import Kind
from fl.partition import Index
from fl.protection import Message
from fl.streams import Streams


@dataclass(frozen=True)
class Cell:
    """The examples of one class that one client holds."""

    model: Artifact  # the client's latest upload
    label: int
    members: Index
    others: Index  # one example of each other class of the client


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
    held = [c for k in clients for c in cells(case, models[k])]
    for n in settings.sizes:
        possible = [cell for cell in held if len(cell.members) >= n]
        # A cell with exactly n examples has one group of that size, however often it is drawn
        wanted = settings.groups if any(len(c.members) > n for c in possible) else len(possible)
        for i in range(wanted if possible else 0):
            cell = possible[i % len(possible)]
            group = np.sort(rng.choice(cell.members, n, replace=False))
            sent = sent_prototype(lab, cell, group, recorded, Streams(case.streams.key("replay", n, i)))
            made.add(f"replay/n{n}/{i}", replace(cell.model, kind=Kind.LOCAL_PROTOTYPES), sent, group, {"n": n})
    return made


def cells(case: Case, model: Artifact) -> list[Cell]:
    """The classes of a model's sender, in order."""
    assert model.sender.index is not None, f"{model.id}: no client sent it"
    own, labels = case.parts[model.sender.index], case.data.train.y
    classes, first = np.unique(labels[own], return_index=True)
    return [Cell(model, int(c), own[labels[own] == c], own[first[classes != c]]) for c in classes]


def sent_prototype(
    lab: Lab, cell: Cell, group: Index, recorded: Sequence[Artifact], streams: Streams
) -> Message | None:
    """What arrives as the prototype of the cell's class, where the client has only this group of it.

    None where a protection or the method itself withholds it. `recorded` holds what the client had received;
    `streams` are the replay's own, so that two replays of one client meet different noise.
    """
    client, round, before = cell.model.sender.index, cell.model.round, received(recorded, cell.model)
    assert client is not None
    own = {k: torch.from_numpy(np.array(v)) for k, v in cell.model.payload.items()}
    owned = np.concatenate([group, cell.others])
    alone = lab.alone(client, owned, streams, epochs=0, batch=len(owned))
    reply = alone.trained(client, round, before | {Kind.GLOBAL_MODEL: own})
    sent = alone.sent(client, round, reply.message, before)
    if sent is None or Kind.LOCAL_PROTOTYPES not in sent:
        return None
    rows = sent[Kind.LOCAL_PROTOTYPES]["classes"] == cell.label
    if not rows.any():
        return None
    return {Kind.LOCAL_PROTOTYPES: {k: v[rows] for k, v in sent[Kind.LOCAL_PROTOTYPES].items()}}
