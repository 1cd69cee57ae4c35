"""Replayed condensed images: what a client sends for a class of n images, made with the method's code.

Few federations hold classes of every size. The auditor therefore condenses n of a client's own images,
with the settings of the run and through the same protections, for every n in replay.sizes; and once
more from real images for the smallest n, which is the planted leak: what unsafe implementations upload.

All groups of a size share their random networks, as the classes of a client do, and so run as one. Large
groups are costly, so a size gets fewer of them, replay.groups images' worth times `_IMAGES`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audit.controls.lab import Lab, Replays
from audit.settings.config import Replay
from audit.subject.case import Case
from fl.artifact import Artifact
from fl.families.condensation import Cell, Condensing, condense
from fl.kinds import Kind
from fl.methods.feddc_condense import FedDCCondense, condensing
from fl.model import initialise
from fl.protection import Message
from fl.streams import Streams
from fl.training.local import channels_last, normalise

_IMAGES = 5  # real images in all groups of one size, per group that is wanted
_LEAST = 8  # groups of any size


class _Group(NamedTuple):
    client: int
    label: int
    images: NDArray[np.int64]


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed condensed_images and condensed_labels, a message a group.

    Empty where the method condenses nothing, or nobody's condensed images were recorded.
    """
    made, method = Replays(), case.method
    latest = {
        a.sender.index: a
        for a in sorted(recorded, key=lambda a: a.round)
        if a.kind == Kind.CONDENSED_IMAGES and a.sender.index in case.parts
    }
    lab = Lab.of(case) if latest and isinstance(method, FedDCCondense) else None
    if lab is None or not isinstance(method, FedDCCondense):
        return made
    rng, labels = case.streams.numpy("replay_condensed"), case.data.train.y
    senders = sorted(k for k in latest if k is not None)
    clients = sorted(rng.permutation(senders)[: settings.clients].tolist())
    cells = []
    for k in clients:
        index = case.parts[k]
        cells += [_Group(k, int(c), index[labels[index] == c]) for c in np.unique(labels[index])]
    ours = condensing(method.config)
    for n in settings.sizes:
        groups = _groups(cells, n, settings.groups, rng)
        for init in ("noise", "real") if n == min(settings.sizes) else ("noise",):
            _replay(case, lab, made, groups, replace(ours, init=init, images_per_class=1), n, latest)
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
    case: Case,
    lab: Lab,
    made: Replays,
    groups: Sequence[_Group],
    settings: Condensing,
    n: int,
    latest: Mapping[int | None, Artifact],
) -> None:
    if not groups:
        return
    key = ("replay_condensed", n, settings.init)
    net, train = initialise(lab.make, case.streams), case.data.train
    channels_last(net)
    cells = [Cell(normalise(torch.from_numpy(train.x[g.images]), case.data), g.label) for g in groups]
    images = condense(net, cells, settings, case.streams.torch(*key))
    for i, (group, image) in enumerate(zip(groups, images, strict=True)):
        message: Message = {
            Kind.CONDENSED_IMAGES: {"images": image},
            Kind.CONDENSED_LABELS: {"labels": torch.tensor([group.label])},
        }
        like = latest[group.client]
        # A stream of its own, so that two replays of one client meet different noise
        seeded = lab.holding(streams=Streams(case.streams.key(*key, i)))
        sent = seeded.sent(group.client, like.round, message, {})
        for kind in message:
            id = f"replay/condensed-{settings.init}/n{n}/{i}/{kind}"
            made.add(id, replace(like, kind=kind), sent, group.images, {"n": n, "init": settings.init})
