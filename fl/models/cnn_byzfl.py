"""ByzFL's network for MNIST: 431,080 weights at 1 x 28 x 28 and 10 classes."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class CnnByzfl(Net):
    """conv5x5 20, pool, conv5x5 50, pool, fc 500; ReLU throughout."""

    source = "ByzFL, cnn_mnist"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        self.conv1 = nn.Conv2d(channels("cnn_byzfl", shape), 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc = nn.Linear(flat_size("cnn_byzfl", self.maps, shape), 500)
        self.head = nn.Linear(500, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 50, h, w]."""
        return pool_then(relu, self.conv2(pool_then(relu, self.conv1(x))))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc(self.maps(x).flatten(1)))
