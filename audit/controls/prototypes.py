"""Replays: what a client would have sent if its class had n samples, made with its own model.

A federation seldom sends prototypes of every size, and an attack that finds nothing proves nothing
unless it is seen to work where a leak is certain. So the client is played once more (audit/controls/lab.py): it
starts from the very model it uploaded, trains no further, owns n of its images of one class and one image of each
of its other classes, and sends what the method's own code makes of them, through the run's protections. Of what
arrives, the prototype of the one class is kept. n = 1 is the planted leak, through every client's code and,
where the run protects what is sent, once more without the protections; the larger n give the curve of leakage
against n. Replayed artifacts are marked as such everywhere.

Clients also send all that they own once more, in their own streams: bit for bit what was recorded, where the
replay is what the method does. What an attack makes of both is compared (audit/verdict/replays.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.audit.controls.effort import PlayedClients, count_groups, count_reading
from fedaudit.audit.controls.lab import EACH, Lab, Replays, find_received_message, has_received_model, name_replay
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message


@dataclass(frozen=True)
class ClassShare:
    """The examples of one class that one client holds."""

    sent: Artifact  # the client's latest prototypes
    label: int
    members: Index
    others: Index  # one example of each other class of the client


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, of these clients, about.

    A visit reads an example of each other class beside the group; and a client sends of all that it owns.
    """
    held, steps = clients.take(settings.clients), count_reading(len(clients), clients.mean_size)
    for n in settings.sizes:
        wanted = count_groups(held, n, settings.groups)
        if n == 1:
            wanted = max(wanted, EACH * len(clients))
        steps += count_reading(wanted, n + clients.mean_classes - 1)
    return steps


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed local_prototypes of every size in settings.sizes, and of all that each client owns.

    Groups of a size are drawn at random, spread over settings.clients clients and their classes.
    Empty where no prototypes were recorded together with a model of that round.
    """
    recorded, seeds = index(recorded), lab.holdings.streams
    made, latest = Replays(), senders(lab.owned, recorded)
    if not latest:
        return made
    rng = seeds.numpy("replay")
    clients = sorted(rng.permutation(sorted(latest))[: settings.clients].tolist())
    held = [c for k in clients for c in cells(lab, latest[k])]
    for n in settings.sizes:
        possible = [cell for cell in held if len(cell.members) >= n]
        # A cell with exactly n examples has one group of that size, however often it is drawn
        wanted = settings.groups if any(len(c.members) > n for c in possible) else len(possible)
        if n == 1:
            possible, wanted = _take_turns(lab, latest), max(wanted, EACH * len(latest))
        for i in range(wanted if possible else 0):
            cell = possible[i % len(possible)]
            group = np.sort(rng.choice(cell.members, n, replace=False))
            streams = Streams(seeds.key("replay", n, i))
            benches = lab.with_and_without() if n == 1 else [(REPLAYED, lab)]
            owned = np.concatenate([group, cell.others])
            for origin, sent in _send(benches, cell.sent, owned, recorded, streams):
                id = name_replay(f"replay/n{n}/{i}", origin)
                made.add(id, cell.sent, _of_class(sent, cell.label), group, {"n": n}, origin)
    is_summed = any(p.hides_single_uploads() for p in lab.protections)
    for k in sorted(latest) if not is_summed else ():  # no message is one client's
        if len(lab.holdings.parts[k]):
            add_whole_classes(lab, latest[k], recorded, made)
    return made


def _take_turns(lab: Lab, latest: Mapping[int, Artifact]) -> list[ClassShare]:
    """The cells of all clients: the first of each, then the second of each that has two, and so on."""
    every = [cells(lab, latest[k]) for k in sorted(latest)]
    return [own[i] for i in range(max(map(len, every))) for own in every if i < len(own)]


def senders(owned: Mapping[int, Index], recorded: Sequence[Artifact]) -> dict[int, Artifact]:
    """The latest prototypes of each client that holds something and whose model of that round is known."""
    recorded = index(recorded)
    found = recorded.select(kind=Kind.LOCAL_PROTOTYPES, origin="recorded")
    found = [a for a in found if a.sender.index in owned and can_begin(recorded, a)]
    return {a.sender.index: a for a in sorted(found, key=lambda a: a.round) if a.sender.index is not None}


def find_start(recorded: Sequence[Artifact], sent: Artifact) -> Message | None:
    """What the sender had received, with the model that it uploaded in the place of the global one.

    A client that uploads none plays from what it received. None where neither is known.
    """
    before = find_received_message(recorded, sent)
    for a in find_updates(recorded, sent):
        own = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
        start = before.get(Kind.GLOBAL_MODEL, {})
        if a.kind == Kind.MODEL_DELTA:
            if not start:
                continue
            own = {k: start[k] + v for k, v in own.items() if k in start}
        return before | {Kind.GLOBAL_MODEL: {**start, **own}}
    return before if Kind.GLOBAL_MODEL in before else None


def can_begin(recorded: Sequence[Artifact], sent: Artifact) -> bool:
    """Whether begun() knows what the sender played from."""
    own = any(a.kind != Kind.MODEL_DELTA for a in find_updates(recorded, sent))
    return own or has_received_model(recorded, sent)


def find_updates(recorded: Sequence[Artifact], sent: Artifact) -> list[Artifact]:
    """Its sender's own models, and changes of such, of that round."""
    theirs = index(recorded).select(round=sent.round, sender=sent.sender, origin="recorded")
    return [a for a in theirs if a.kind in UPDATES]


def cells(lab: Lab, sent: Artifact) -> list[ClassShare]:
    """The classes of a sender, in order."""
    own, labels = lab.owned[sent.sender.number], lab.holdings.data.train.y
    classes, first = np.unique(labels[own], return_index=True)
    return [ClassShare(sent, int(c), own[labels[own] == c], own[first[classes != c]]) for c in classes]


def sent_prototype(
    lab: Lab, cell: ClassShare, group: Index, recorded: Sequence[Artifact], streams: Streams
) -> Message | None:
    """What arrives as the prototype of the cell's class, where the client has only this group of it.

    None where a protection or the method itself withholds it. `recorded` holds what the client had received;
    `streams` are the replay's own, so that two replays of one client meet different noise.
    """
    owned = np.concatenate([group, cell.others])
    ((_, sent),) = _send([(REPLAYED, lab)], cell.sent, owned, recorded, streams)
    return _of_class(sent, cell.label)


def add_whole_classes(lab: Lab, like: Artifact, recorded: Sequence[Artifact], made: Replays) -> None:
    """Adds a message for each class of all that `like`'s sender owns, as its own streams make it."""
    client = like.sender.number
    ((_, sent),) = _send([(REPLAYED, lab)], like, lab.owned[client], recorded, lab.holdings.streams)
    for cell in cells(lab, like):
        id, note = f"replay/whole/{client}/{cell.label}", {"n": len(cell.members), "whole": 1}
        made.add(id, like, _of_class(sent, cell.label), cell.members, note)


def _send(
    benches: Sequence[tuple[str, Lab]],
    like: Artifact,
    owned: Index,
    recorded: Sequence[Artifact],
    streams: Streams,
) -> list[tuple[str, Message | None]]:
    """Origins, and what arrives of a client that owns these rows: nobody trains, so one visit serves all."""
    client, start = like.sender.number, find_start(recorded, like)
    assert start is not None
    played = [(o, lab.alone(client, owned, streams, epochs=0, batch=len(owned))) for o, lab in benches]
    reply, received = played[0][1].train(client, like.round, start), find_received_message(recorded, like)
    return [(o, alone.send(client, like.round, reply.message, received)) for o, alone in played]


def _of_class(sent: Message | None, label: int) -> Message | None:
    if sent is None or Kind.LOCAL_PROTOTYPES not in sent:
        return None
    rows = sent[Kind.LOCAL_PROTOTYPES]["classes"] == label
    if not rows.any():
        return None
    own: Message = {Kind.LOCAL_PROTOTYPES: {k: v[rows] for k, v in sent[Kind.LOCAL_PROTOTYPES].items()}}
    return own | {Kind.AGGREGATE: sent[Kind.AGGREGATE]} if Kind.AGGREGATE in sent else own
