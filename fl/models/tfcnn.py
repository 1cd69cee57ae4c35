"""TFCNN: FedRS's network for CIFAR, 56,320 weights before the head at 3 x 32 x 32."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._fedrs import he_normal
from fedaudit.fl.models._images import channels, flat_size, pool_then


class TFCNN(Net):
    """conv3x3 32, 64, 64 (pad 1), each with ReLU and pool; features 1024; head without bias."""

    source = "FedRS, KDD 2021"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        widths = [channels("tfcnn", shape), 32, 64, 64]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        he_normal(self)
        self.head = nn.Linear(flat_size("tfcnn", self.features, shape), classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = pool_then(relu, conv(x))
        return x.flatten(1)
