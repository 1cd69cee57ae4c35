"""What the tests of single methods share: settings, a network whose logits are its input, continuing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net
from fedaudit.fl.training.local import Handle
from tests.fl.worlds import Stopped, run, same

# Momentum and weight decay are on, so that an identity is one of the whole update.
SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "local_epochs": 2,
    "batch_size": 8,
    "lr": 0.05,
    "momentum": 0.5,
    "weight_decay": 0.01,
}
WORLD: dict[str, Any] = {"reply_loss": 0.25}


class Direct(Net):
    """Logits are the input itself: a known-answer test of a loss."""

    def __init__(self) -> None:
        super().__init__((), 0)
        self.head = nn.Identity()

    def features(self, x: Tensor) -> Tensor:
        return x


def direct() -> Handle:
    return Handle(Direct())


def logit_gradient(loss: Callable[[Tensor], Tensor], logits: list[float]) -> tuple[float, list[float]]:
    """The value of a loss of logits [1, C], and its gradient."""
    z = torch.tensor([logits], requires_grad=True)
    value = loss(z)
    (grad,) = torch.autograd.grad(value, [z])
    return float(value.detach()), grad[0].tolist()


def continues(make: Callable[[], RoundMethod], folder: Path, **world: Any) -> bool:
    """Whether a run stopped in its second round and continued gives the bits of one never stopped."""
    with pytest.raises(Stopped):
        run(make(), folder=folder, stop_after=1, **world)
    return same(run(make(), folder=folder, **world), run(make(), **world))
