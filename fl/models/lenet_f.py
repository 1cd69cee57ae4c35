"""LeNet-F: ReBaFL's network for Fashion-MNIST, 117,066 weights at 1 x 28 x 28 and 10 classes."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class LeNetF(Net):
    """conv5x5 16, pool, conv5x5 32 (pad 1), pool, fc 128; leaky ReLU throughout."""

    source = "ReBaFL"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("lenet_f", shape), 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        self.fc = nn.Linear(flat_size("lenet_f", self.maps, shape), 128)
        self.head = nn.Linear(128, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 32, h, w]."""
        x = pool_then(leaky_relu, self.conv1(x))
        return pool_then(leaky_relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return leaky_relu(self.fc(self.maps(x).flatten(1)))
