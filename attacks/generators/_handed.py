"""Generators and critics that clients handed on: the newest of each, and whose images are behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind


def list_uploads(view: Sequence[Artifact], kind: Kind) -> list[Artifact]:
    """Generators, or critics, that clients sent to the server, oldest first."""
    return _by_clients(view, kind, Channel.UPLINK)


def list_relays(view: Sequence[Artifact], kind: Kind) -> list[Artifact]:
    """Generators, or critics, that one client handed to another, oldest first."""
    return _by_clients(view, kind, Channel.RELAY)


def newest(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The last of every sender; oldest first comes in."""
    return list({a.sender: a for a in artifacts}.values())


def trained_by(artifacts: Sequence[Artifact], view: Sequence[Artifact]) -> list[list[int]]:
    """For each of the artifacts the clients that trained it: its sender, where no group map says more."""
    groups: dict[int, list[int]] = {}  # client -> all of its group, by the first map that names it
    for a in index(view).select(kind=Kind.GROUP_MAP):
        pairs = list(zip(a.payload["client"].tolist(), a.payload["group"].tolist(), strict=True))
        members: dict[Any, list[int]] = {}
        for client, group in pairs:
            members.setdefault(group, []).append(int(client))
        for client, group in pairs:
            groups.setdefault(client, members[group])
    senders = [a.sender.index for a in artifacts]
    return [[] if k is None else groups.get(k, [k]) for k in senders]


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An object array [k] of the values, whatever they are."""
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def _by_clients(view: Sequence[Artifact], kind: Kind, channel: Channel) -> list[Artifact]:
    return sorted(
        (a for a in view if a.kind == kind and a.channel == channel and a.sender.role == Role.CLIENT),
        key=lambda a: a.round,
    )
