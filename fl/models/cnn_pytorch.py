"""The network of PyTorch's MNIST example, which the bucketing paper trains: 1,199,882 weights at 1 x 28 x 28.

The example drops a quarter of the maps and half of the features while it trains; here nothing is dropped, because
all randomness of a run has streams of its own.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class CnnPytorch(Net):
    """conv3x3 32, ReLU, conv3x3 64, pool, fc 128, ReLU."""

    source = "PyTorch examples, mnist"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("cnn_pytorch", shape), 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(flat_size("cnn_pytorch", self.maps, shape), 128)
        self.head = nn.Linear(128, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 64, h, w]."""
        return pool_then(lambda v: v, self.conv2(relu(self.conv1(x))))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc(self.maps(x).flatten(1)))
