"""LeNet-V: FedRS's network with two features, so that they can be plotted.

33,654 weights before the head at 1 x 28 x 28. The paper gives the sizes; ReLU and the pools are
LeNet's, and nothing follows the two features. The head has no bias, as FedRS's others.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._fedrs import he_normal
from fedaudit.fl.models._images import channels, flat_size, pool_then


class LeNetV(Net):
    """conv5x5 6, pool, conv5x5 16, pool, fc 120, fc 2."""

    source = "FedRS, KDD 2021"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("lenet_v", shape), 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        he_normal(self)
        self.fc1 = nn.Linear(flat_size("lenet_v", self.maps, shape), 120)
        self.fc2 = nn.Linear(120, 2)
        self.head = nn.Linear(2, classes, bias=False)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 16, h, w]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        plane: Tensor = self.fc2(relu(self.fc1(self.maps(x).flatten(1))))
        return plane
