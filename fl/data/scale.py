"""Examples as networks take them: channel by channel less their mean over their deviation, and back.

Rows of a table are taken as their columns say.
"""

from typing import Protocol

import torch
from torch import Tensor

from fedaudit.fl.data.columns import Columns


class Scale(Protocol):
    """Whatever knows how examples were normalised: a data set, or a client."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...

    @property
    def columns(self) -> Columns | None: ...


def normalise(x: Tensor, data: Scale) -> Tensor:
    """(x - mean) / std, channel by channel; token sequences pass unchanged, and rows of a table become inputs."""
    if data.columns is not None:
        return torch.from_numpy(data.columns.model_input(x.detach().cpu().numpy())).to(x.device)
    if not x.is_floating_point():
        return x
    mean, std = _shape_scale(x, data)
    return (x - mean).div_(std)


def denormalise(x: Tensor, data: Scale) -> Tensor:
    """Images [n, C, H, W] in [0, 1] of normalised ones, or rows of a table of inputs."""
    if data.columns is not None:
        return torch.from_numpy(data.columns.read_input(x.detach().cpu().numpy())).to(x.device)
    mean, std = _shape_scale(x, data)
    return (x * std + mean).clamp(0, 1)


def _shape_scale(x: Tensor, data: Scale) -> tuple[Tensor, Tensor]:
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return torch.tensor(data.mean).reshape(shape).to(x), torch.tensor(data.std).reshape(shape).to(x)
