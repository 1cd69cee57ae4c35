"""FEMNIST CNN: FreezeFL's network, 4,377,534 weights at 1 x 28 x 28 and 62 classes."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class FemnistCNN(Net):
    """conv5x5 32, pool, conv5x5 64, pool (both padded by 2), fc 1024, fc 1024; ReLU throughout."""

    source = "FreezeFL"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("femnist_cnn", shape), 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(flat_size("femnist_cnn", self.maps, shape), 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.head = nn.Linear(1024, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 64, H/4, W/4]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc2(relu(self.fc1(self.maps(x).flatten(1)))))
