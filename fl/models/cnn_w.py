"""CNN-W: two 5x5 convolutions and two fully connected layers; the workload of the speed bench.

80,202 weights at 1 x 28 x 28 and 10 classes. With `padding: 2` it is the network the prototype
inversion was developed on (215,370 weights).
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then


class CnnW(Net):
    """conv5x5 16, pool, conv5x5 32, pool, fc 128; ReLU throughout, features after the last one."""

    source = "ours"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        padding: Annotated[
            int,
            Field(
                ge=0,
                le=2,
                description="zeros around the image before each convolution, in pixels; 2 keeps its size",
            ),
        ] = 0

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        pad = (config or self.Config()).padding
        self.conv1 = nn.Conv2d(channels("cnn_w", shape), 16, 5, padding=pad)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=pad)
        self.fc = nn.Linear(flat_size("cnn_w", self.maps, shape), 128)
        self.head = nn.Linear(128, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 32, h, w]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc(self.maps(x).flatten(1)))
