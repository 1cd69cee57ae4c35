"""Networks of other people's federations; the auditor is given this file."""

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """[b, 1, 8, 8] -> [b, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(x.flatten(1))))


class Cached(Mlp):
    """An MLP with a buffer that holds nothing yet."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(0, 16))


class Normed(nn.Module):
    """[b, 1, 8, 8] -> [b, 10], with batch normalisation, whose counter is an integer buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


class Table(nn.Module):
    """[b, 6] -> [b, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(x)))


class Logistic(nn.Linear):
    """[b, 1, 8, 8] -> [b, 10]; its arrays are `weight` and `bias`."""

    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


class Kernels(nn.Module):
    """[b, 1, 8, 8] -> [b, 10]; kernels stand [inputs, outputs], as in Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.hidden_bias = nn.Parameter(torch.randn(64, 16) / 8), nn.Parameter(torch.zeros(16))
        self.head, self.head_bias = nn.Parameter(torch.randn(16, 10) / 4), nn.Parameter(torch.zeros(10))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.flatten(1) @ self.hidden + self.hidden_bias) @ self.head + self.head_bias


class Words(nn.Module):
    """Tokens [b, 12] -> [b, 10]: the mean of their vectors, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.EmbeddingBag(60, 16, mode="mean", padding_idx=0), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


class Price(nn.Linear):
    """[b, 6] -> [b, 1], a real number."""

    def __init__(self) -> None:
        super().__init__(6, 1)


class LowRank(nn.Module):
    """A frozen layer and an adapter of it, named as peft names them."""

    def __init__(self, inputs: int, outputs: int, rank: int = 4) -> None:
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(inputs, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, outputs, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Adapted(nn.Module):
    """[b, 1, 8, 8] -> [b, 10]; adapters are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = LowRank(64, 16), LowRank(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(x.flatten(1))))


class MlpTanh(Mlp):
    """Arrays as those of Mlp, and another function."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


class NormedTanh(Normed):
    """Arrays as those of Normed, and another function."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.conv(x))).flatten(1))
