"""Small CNN: two 3x3 convolutions, for images of 8 to about 25 pixels. Ours, from no paper.

It exists because the data sets that ship with the package (scikit-learn's digits at 8 x 8,
scikit-image's faces at 25 x 25) are too small for the papers' 5x5 kernels.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size, pool_then
from fedaudit.fl.runtime.ranges import AtLeastOne


class SmallCNN(Net):
    """conv3x3 16, pool, conv3x3 32, pool (both padded by 1), fc 64; ReLU throughout."""

    source = "ours"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        features: Annotated[AtLeastOne, Field(description="width of the layer before the head")] = 64

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        width = (config or self.Config()).features
        self.conv1 = nn.Conv2d(channels("small_cnn", shape), 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(flat_size("small_cnn", self.maps, shape), width)
        self.head = nn.Linear(width, classes)

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, 32, H/4, W/4]."""
        x = pool_then(relu, self.conv1(x))
        return pool_then(relu, self.conv2(x))

    def features(self, x: Tensor) -> Tensor:
        return relu(self.fc(self.maps(x).flatten(1)))
