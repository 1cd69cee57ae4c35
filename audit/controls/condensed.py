"""Replayed condensed images: what a client sends for a class of n images, made by the method's own client.

Few federations hold classes of every size. The auditor therefore has clients send once more, trained no further,
what their own code makes of n of their images of each class, for every n in replay.sizes, through the run's
protections; of single images through every client's code, and once more without the protections. Where the method
can start from real images, some clients do so for the smallest n: the planted leak, what unsafe implementations
upload.

The classes of one visit are condensed together, as a client does. Large groups are costly, so a size gets fewer
of them, replay.groups images' worth times `_IMAGES`.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.audit.controls.effort import PlayedClients, count_groups
from fedaudit.audit.controls.lab import EACH, Lab, Replays, find_received_message, name_replay
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message

_IMAGES = 5  # real images in all groups of one size, per group that is wanted
_LEAST = 8  # groups of any size
_TWICE = 5  # steps as long as a gradient that is differentiated again: 4.5 to 6 on four of the networks here
_KINDS = (Kind.CONDENSED_IMAGES, Kind.CONDENSED_LABELS)
_Played = TypeVar("_Played")  # a client, or what it holds


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:
    """Batch size -> steps that take about as long as condensing, where so many clients are played.

    An iteration is a step on the real images, and `_TWICE` on each that is made: its gradient is differentiated.
    """
    iterations, made = (int(getattr(training, name, 1)) for name in ("iterations", "images_per_class"))
    steps = Counter[int]()
    some = clients.take(settings.clients)
    for n, init, held, wanted in _list_sets(settings, clients.classes, some):
        ways = 1 + ((n, init) == (1, "own") and clients.is_protected)
        groups = ways * min(count_groups(held, n, wanted), _count_groups(n, wanted))
        steps += Counter({n: groups * iterations}) + Counter({1: groups * iterations * made * _TWICE})
    return steps


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed condensed_images and condensed_labels, a message a group.

    Empty where nobody's condensed images were recorded with what it had received.
    """
    recorded, seeds = index(recorded), lab.holdings.streams
    images = recorded.select(kind=Kind.CONDENSED_IMAGES, origin="recorded")
    latest = {a.sender.index: a for a in sorted(images, key=lambda a: a.round) if a.sender.index in lab.owned}
    if not latest:
        return Replays()
    rng = seeds.numpy("replay_condensed")
    senders = sorted(k for k in latest if k is not None)
    some = sorted(rng.permutation(senders)[: settings.clients].tolist())
    jobs = list[_Visit]()
    for n, init, clients, wanted in _list_sets(settings, senders, some):
        if (bench := _start_lab(lab, init)) is None:
            continue
        visits = _visits({k: lab.owned[k] for k in clients}, lab.holdings.data.train.y, n, wanted, rng)
        players = bench.with_and_without() if (n, init) == (1, "own") else [(REPLAYED, bench)]
        jobs += [
            _Visit(player, latest[client], groups, n, init, origin, i)
            for origin, player in players
            for i, (client, groups) in enumerate(visits)
        ]
    return Replays.join(collect(jobs, partial(_play, recorded)))


def _list_sets(
    settings: Replay, every: Sequence[_Played], some: Sequence[_Played]
) -> list[tuple[int, str, Sequence[_Played], int]]:
    """Sets of groups: images of a group, what condensed ones start from, who is played, and groups wanted."""
    single = (every, max(settings.groups, EACH * len(every)))
    own = [(n, "own", *(single if n == 1 else (some, settings.groups))) for n in settings.sizes]
    return [*own, (min(settings.sizes), "real", some, settings.groups)]


class _Visit(NamedTuple):
    """A client that is played once."""

    lab: Lab
    like: Artifact  # what it sent
    groups: dict[int, Index]  # label -> rows
    n: int  # of each group
    init: str
    origin: str
    number: int


def _play(recorded: Sequence[Artifact], visit: _Visit) -> Replays:
    made, (lab, like, groups, n, init, origin, i) = Replays(), visit
    streams = Streams(lab.holdings.streams.key("replay_condensed", n, init, i))
    sent = sent_images(lab, like, groups, recorded, streams)
    id = name_replay(f"replay/condensed-{init}/n{n}/{i}", origin)
    _add(made, id, like, sent, groups, {"n": n, "init": init}, origin)
    return made


def sent_images(
    lab: Lab, like: Artifact, groups: dict[int, Index], recorded: Sequence[Artifact], streams: Streams
) -> Message | None:
    """What arrives of `like`'s sender where it owns these groups only, label -> rows; None where nothing does."""
    client, before = like.sender.number, find_received_message(recorded, like)
    owned = np.concatenate(list(groups.values()))
    alone = lab.alone(client, owned, streams, epochs=0, batch=len(owned))
    return alone.send(client, like.round, alone.train(client, like.round, before).message, before)


def _count_groups(n: int, wanted: int) -> int:
    """Groups of n images, where that many of single ones are wanted."""
    return min(wanted, max(_LEAST, _IMAGES * wanted // n))


def _visits(
    owned: Mapping[int, Index], labels: NDArray[np.int64], n: int, wanted: int, rng: np.random.Generator
) -> list[tuple[int, dict[int, Index]]]:
    """Who is played with which groups of n images, one of each of its classes; until there are groups enough."""
    cells = {
        k: {int(c): rows for c in np.unique(labels[own]) if len(rows := own[labels[own] == c]) >= n}
        for k, own in owned.items()
    }
    cells = {k: own for k, own in cells.items() if own}
    possible = [rows for own in cells.values() for rows in own.values()]
    # A cell with exactly n images has one group of that size, however often it is drawn
    most = wanted if any(len(rows) > n for rows in possible) else len(possible)
    left, found = min(most, _count_groups(n, wanted)), []
    share = -(-left // max(1, len(cells)))  # so that every client has as many
    while left > 0:
        for k, own in cells.items():
            some = dict(list(own.items())[: min(left, share)])
            if some:
                groups = {c: np.sort(rng.choice(rows, n, replace=False)) for c, rows in some.items()}
                found.append((k, groups))
                left -= len(some)
    return found


def _start_lab(lab: Lab, init: str) -> Lab | None:
    """A lab whose clients start their images as the run does ("own") or so; None where there is no choice."""
    if init == "own":
        return lab
    config = lab.method.config
    if not {"init", "unsafe_allow_real_init"} <= {f.name for f in dataclasses.fields(config)}:
        return None
    changed = dataclasses.replace(config, init=init, unsafe_allow_real_init=True)
    return dataclasses.replace(lab, method=type(lab.method)(changed))


def _add(
    made: Replays,
    id: str,
    like: Artifact,
    sent: Message | None,
    groups: dict[int, Index],
    note: dict[str, float | str],
    origin: str,
) -> None:
    """One message a group, of the images of its label."""
    arrived = sent if sent is not None and all(kind in sent for kind in _KINDS) else {}
    labels = arrived[Kind.CONDENSED_LABELS]["labels"] if arrived else torch.zeros(0)
    for label, group in groups.items():
        rows = labels == label
        for kind in _KINDS:
            part = {kind: {k: v[rows] for k, v in arrived[kind].items()}} if rows.any() else None
            made.add(f"{id}.{label}/{kind}", dataclasses.replace(like, kind=kind), part, group, note, origin)
