"""CNN5: Seol and Kim's five-layer network for CIFAR-10.

The paper says conv5x5 64, conv5x5 128, "a max pool" and three fully connected layers. Our choice of
the rest: a pool after each convolution, no padding, ReLU, fc 384 and 192; 1,514,826 weights
at 3 x 32 x 32 and 10 classes.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class CNN5(Net):
    """conv5x5 64, pool, conv5x5 128, pool, fc 384, fc 192."""

    source = "Seol and Kim"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("cnn5", shape), 64, 5)
        self.conv2 = nn.Conv2d(64, 128, 5)
        self.fc1 = nn.Linear(flat_size("cnn5", self.maps, shape), 384)
        self.fc2 = nn.Linear(384, 192)
        self.head = nn.Linear(192, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 128, h, w]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc2(relu(self.fc1(self.maps(x).flatten(1)))))
