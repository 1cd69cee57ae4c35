"""Replayed condensed images: what a client sends for a class of n images, made with the method's code.

Few federations hold classes of every size. The auditor therefore condenses n of a client's own images,
with the settings of the run and through the same protections, for every n in config.replay.sizes; and once
more from real images for the smallest n, which is the planted leak: what unsafe implementations upload.

All groups of a size share their random networks, as the classes of a client do, and so run as one. Large
groups are costly, so a size gets fewer of them, config.replay.groups images' worth times `_IMAGES`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audit.controls.prototypes import Replays
from audit.subject.simulated import World
from fl.artifact import Artifact, Channel
from fl.families.condensation import Cell, Condensing, condense
from fl.kinds import Kind
from fl.methods.feddc_condense import FedDCCondense, condensing
from fl.model import initialise
from fl.protection import Message
from fl.streams import Streams
from fl.training.local import channels_last, normalise
from fl.tree import to_numpy
from fl.wire import Wire

_IMAGES = 5  # real images in all groups of one size, per group that is wanted
_LEAST = 8  # groups of any size


class _Group(NamedTuple):
    client: int
    label: int
    images: NDArray[np.int64]


def replay_condensed(world: World, recorded: Sequence[Artifact]) -> Replays:
    """Replayed condensed_images and condensed_labels, a message a group.

    Empty where the method condenses nothing, or nobody's condensed images were recorded.
    """
    made, settings = Replays([], {}), world.config.replay
    latest = {
        a.sender.index: a
        for a in sorted(recorded, key=lambda a: a.round)
        if a.kind == Kind.CONDENSED_IMAGES and a.sender.index is not None
    }
    if not isinstance(world.method, FedDCCondense) or not latest:
        return made
    rng, labels = world.streams.numpy("replay_condensed"), world.data.train.y
    clients = sorted(rng.permutation(sorted(latest))[: settings.clients].tolist())
    cells = []
    for k in clients:
        index = world.population.parts[k]
        cells += [_Group(k, int(c), index[labels[index] == c]) for c in np.unique(labels[index])]
    ours = condensing(world.method.config)
    for n in settings.sizes:
        groups = _groups(cells, n, settings.groups, rng)
        for init in ("noise", "real") if n == min(settings.sizes) else ("noise",):
            _replay(world, made, groups, replace(ours, init=init, images_per_class=1), n, latest)
    return made


def _groups(cells: Sequence[_Group], n: int, wanted: int, rng: np.random.Generator) -> list[_Group]:
    possible = [c for c in cells if len(c.images) >= n]
    if not possible:
        return []
    # A cell with exactly n images has one group of that size, however often it is drawn
    most = wanted if any(len(c.images) > n for c in possible) else len(possible)
    count = min(most, max(_LEAST, _IMAGES * wanted // n))
    turns = [possible[i % len(possible)] for i in range(count)]
    return [_Group(c.client, c.label, np.sort(rng.choice(c.images, n, replace=False))) for c in turns]


def _replay(
    world: World,
    made: Replays,
    groups: Sequence[_Group],
    settings: Condensing,
    n: int,
    latest: dict[int, Artifact],
) -> None:
    if not groups:
        return
    key = ("replay_condensed", n, settings.init)
    net, train = initialise(world.make_net, world.streams), world.data.train
    channels_last(net)
    cells = [Cell(normalise(torch.from_numpy(train.x[g.images]), world.data), g.label) for g in groups]
    images = condense(net, cells, settings, world.streams.torch(*key))
    for i, (group, image) in enumerate(zip(groups, images, strict=True)):
        message: Message = {
            Kind.CONDENSED_IMAGES: {"images": image},
            Kind.CONDENSED_LABELS: {"labels": torch.tensor([group.label])},
        }
        like = latest[group.client]
        # A stream of its own, so that two replays of one client meet different noise
        wire = Wire(world.method.card, Streams(world.streams.key(*key, i)), world.protections)
        sent = wire.uplink(like.round, message, group.client, {})
        if sent is None:
            continue
        name = f"replay/condensed-{settings.init}/n{n}/{i}"
        made.groups[f"{name}/{Kind.CONDENSED_IMAGES}"] = group.images
        made.artifacts.extend(
            Artifact(
                id=f"{name}/{kind}",
                kind=kind,
                channel=Channel.UPLINK,
                round=like.round,
                sender=like.sender,
                seen_by=like.seen_by,
                payload=to_numpy(sent[kind]),
                origin="replayed",
                note={"n": n, "init": settings.init},
            )
            for kind in message
        )
