"""How many bytes a message takes as it is sent, for the wire's account, the clock and the record."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.coded import size_of


def sizes(message: Mapping[Kind, Mapping[str, Tensor]]) -> dict[Kind, int]:
    """Bytes of each kind."""
    return {kind: size_of(payload) for kind, payload in message.items()}


def observation(
    time: float, down: Mapping[Kind, Mapping[str, Tensor]], up: Mapping[Kind, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """The payload of task_time: when an answer came, and how much was exchanged."""
    sent = {"bytes_down": message_bytes(down), "bytes_up": message_bytes(up)}
    return {"time": torch.tensor(time, dtype=torch.float64)} | {k: torch.tensor(n) for k, n in sent.items()}


def message_bytes(message: Mapping[Kind, Mapping[str, Tensor]]) -> int:
    return sum(sizes(message).values())
