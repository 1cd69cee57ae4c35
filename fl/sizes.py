"""How many bytes a message takes as it is sent.

A part of a network is held as the whole network with zeros outside the part, so that everybody can run it; what
is sent is the part. The message's `width` says how many numbers that are.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fl.kinds import Kind
from fl.tree import size_bytes

CUT = (Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL)


def sizes(message: Mapping[Kind, Mapping[str, Tensor]]) -> dict[Kind, int]:
    """Bytes of each kind."""
    found = {kind: size_bytes(payload) for kind, payload in message.items()}
    if Kind.WIDTH in message:
        values = int(message[Kind.WIDTH]["values"])
        found |= {kind: 4 * values for kind in CUT if kind in message}
    return found


def observation(
    time: float, down: Mapping[Kind, Mapping[str, Tensor]], up: Mapping[Kind, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """The payload of task_time: when an answer came, and how much was exchanged."""
    sent = {"bytes_down": message_bytes(down), "bytes_up": message_bytes(up)}
    return {"time": torch.tensor(time, dtype=torch.float64)} | {k: torch.tensor(n) for k, n in sent.items()}


def message_bytes(message: Mapping[Kind, Mapping[str, Tensor]]) -> int:
    return sum(sizes(message).values())
