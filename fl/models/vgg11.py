"""VGG11: torchvision's eleven-layer VGG without normalisation, its convolutions only, as in FedRS.

9,220,480 weights before the head, 512 features from 32 x 32 pixels. FedDC's VGG-11 is the same.
Simonyan and Zisserman, ICLR 2015, arXiv:1409.1556, table 1, column A.
"""

from typing import Any

from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.models._fedrs import he_normal
from fedaudit.fl.models._images import channels, flat_size


class VGG11(Net):
    """Eight 3x3 convolutions with ReLU, five pools. The head has no bias, as FedRS's others."""

    source = "FedRS, KDD 2021; arXiv:1409.1556"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        from fedaudit.fl.runtime.vision import torchvision

        super().__init__(shape, classes)
        vgg = torchvision.models.vgg
        layers = list(vgg.make_layers(vgg.cfgs["A"], batch_norm=False))
        if channels("vgg11", shape) != 3:  # torchvision's first layer is for colour
            layers[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
        self.convs = nn.Sequential(
            *(nn.ReLU() if isinstance(layer, nn.ReLU) else layer for layer in layers)  # not in place
        )
        he_normal(self)
        self.head = nn.Linear(flat_size("vgg11", self.features, shape), classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.convs(x)
        return maps.flatten(1)
