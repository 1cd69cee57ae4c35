"""Generators that clients sent: the newest of each, whose pictures are behind it, and how it is asked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.artifact import Artifact, Channel, Kind, Role


def uploaded(view: Sequence[Artifact]) -> list[Artifact]:
    """The newest generator of every client that sent one."""
    found = sorted(
        (a for a in view
         if a.kind == Kind.GAN_G and a.channel == Channel.UPLINK and a.sender.role == Role.CLIENT),
        key=lambda a: a.round,
    )  # fmt: skip
    return list({a.sender: a for a in found}.values())


def trained_by(artifact: Artifact, view: Sequence[Artifact]) -> list[int]:
    """The clients that trained it; its sender, where no group map says more."""
    sender = artifact.sender.index
    for a in view:
        if a.kind == Kind.GROUP_MAP:
            clients, groups = a.payload["client"], a.payload["group"]
            own = groups[clients == sender]
            if len(own):
                return [int(k) for k in clients[groups == own[0]]]
    return [] if sender is None else [sender]


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An object array [k] of the values, whatever they are."""
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found
