"""FeCNN: FedRS's network for FEMNIST, 6,476,672 weights before the head at 1 x 28 x 28."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._fedrs import he_normal
from fedaudit.fl.models._images import channels, flat_size, pool_then


class FeCNN(Net):
    """conv5x5 32, pool, conv5x5 64, pool (both padded by 2), fc 2048; ReLU; head without bias."""

    source = "FedRS, KDD 2021"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("fecnn", shape), 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        he_normal(self)
        self.fc = nn.Linear(flat_size("fecnn", self.maps, shape), 2048)
        self.head = nn.Linear(2048, classes, bias=False)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 64, H/4, W/4]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc(self.maps(x).flatten(1)))
