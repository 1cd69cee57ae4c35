"""LeNet-C: ReBaFL's network for CIFAR, 107,680 weights at 3 x 32 x 32 and 10 classes."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class LeNetC(Net):
    """conv5x5 16, conv5x5 32 (pad 1), conv3x3 64 (pad 1), each with leaky ReLU and pool; fc 128.

    The head has no bias. The paper does not say whether an activation follows the fc layer; the
    authors' code has none, and neither has this unless `activation` is on.
    """

    source = "ReBaFL"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        activation: Annotated[
            bool, Field(description="whether a leaky ReLU follows the fully connected layer")
        ] = False

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        self.activation = (config or self.Config()).activation
        self.conv1 = nn.Conv2d(channels("lenet_c", shape), 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc = nn.Linear(flat_size("lenet_c", self.maps, shape), 128)
        self.head = nn.Linear(128, classes, bias=False)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 64, h, w]."""
        for conv in (self.conv1, self.conv2, self.conv3):
            x = pool_then(leaky_relu, conv(x))
        return x

    def features(self, x: Tensor) -> Tensor:
        h: Tensor = self.fc(self.maps(x).flatten(1))
        return leaky_relu(h) if self.activation else h
