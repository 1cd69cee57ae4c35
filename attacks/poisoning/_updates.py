"""Updates as adversaries see them: the change that a message stands for, and a message of another change.

A model counts as its change from what its sender received. Only parameters are forged: a forged running
statistic could make a model that computes nothing, and that is easy to see.
"""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.adversary import Message, Payload

# what carries an update -> what it is a change from; None: it is a change itself
BASES: dict[Kind, Kind | None] = {
    Kind.LOCAL_MODEL: Kind.GLOBAL_MODEL,
    Kind.RELAY_MODEL: Kind.RELAY_MODEL,
    Kind.MODEL_DELTA: None,
    Kind.NORMALIZED_DELTA: None,
    Kind.GRADIENT: None,
    Kind.GAN_G: Kind.GAN_G,
}
KINDS = tuple(BASES)


def changes(message: Message, received: Message, parameters: Collection[str]) -> Iterator[tuple[Kind, Payload]]:
    """The kinds of a message that carry an update, each with its change in double precision."""
    for kind in KINDS:
        if kind in message:
            base = _base(kind, received)
            floats = {k: v for k, v in message[kind].items() if v.is_floating_point()}
            own = {k: v for k, v in floats.items() if k in parameters} or floats
            yield kind, {k: v.double() - base[k].double() if k in base else v.double() for k, v in own.items()}


def first(message: Message, received: Message, parameters: Collection[str]) -> Payload:
    """The change of the first of them; nothing where a message carries none."""
    return next((change for _, change in changes(message, received, parameters)), {})


def forged(message: Message, received: Message, change: Mapping[str, Tensor], kind: Kind) -> Message:
    """The message with another change."""
    base, payload = _base(kind, received), message[kind]
    new = {
        k: (base[k].double() + v if k in base else v).to(payload[k].dtype).reshape(payload[k].shape)
        for k, v in change.items()
    }
    return message | {kind: payload | new}


def vector(change: Mapping[str, Tensor]) -> Tensor:
    """[P], double precision."""
    return torch.cat([v.double().flatten() for v in change.values()])


def shaped(vector: Tensor, like: Mapping[str, Tensor]) -> Payload:
    """A vector [P] as arrays of these names and shapes."""
    pieces = torch.split(vector, [v.numel() for v in like.values()])
    return {k: p.reshape(v.shape) for (k, v), p in zip(like.items(), pieces, strict=True)}


def _base(kind: Kind, received: Message) -> Payload:
    base = BASES[kind]
    return received.get(base, {}) if base is not None else {}
