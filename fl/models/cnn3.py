"""CNN3: the ConvNet of FedDC (dataset condensation), 319,242 weights at 3 x 32 x 32 and 10 classes."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels, flat_size


class CNN3(Net):
    """Three times conv3x3 128 (pad 1), ReLU, average pool; no normalisation; features 2048."""

    source = "FedDC (dataset condensation), the authors' logs"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        widths = [channels("cnn3", shape), 128, 128, 128]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.head = nn.Linear(flat_size("cnn3", self.features, shape), classes)

    def features(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = avg_pool2d(relu(conv(x)), 2)
        return x.flatten(1)
