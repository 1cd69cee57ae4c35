"""ResNet-18: torchvision's, for small images: a 3x3 stem and no first pool; GANDALF's network.

He, Zhang, Ren, Sun, CVPR 2016, arXiv:1512.03385. Normalised by groups of channels unless
`norm: batch` is set: batch statistics of skewed clients do not average, and they reveal data. (The
GANDALF paper does not say which it used, nor the stem.)
"""

from functools import partial
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.models._images import channels
from fedaudit.fl.runtime.settings import settings


class ResNet18(Net):
    """512 features, the average over the last maps. 11,173,962 weights at 3 channels, 10 classes."""

    source = "GANDALF; arXiv:1512.03385"

    @settings
    class Config:
        norm: Literal["group", "batch"] = Field(
            default="group", description="normalisation; batch statistics do not average and reveal data"
        )
        groups: Literal[1, 2, 4, 8, 16, 32, 64] = Field(
            default=32, description="groups of channels that are normalised together, with norm: group"
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        from fedaudit.fl.runtime.vision import torchvision

        super().__init__(shape, classes)
        chosen = config or self.Config()
        norm = partial(nn.GroupNorm, chosen.groups) if chosen.norm == "group" else nn.BatchNorm2d
        body = torchvision.models.resnet18(num_classes=classes, norm_layer=norm)
        body.conv1 = nn.Conv2d(channels("resnet18", shape), 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
        body.maxpool, body.fc = nn.Identity(), nn.Identity()
        for module in body.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False  # torch.func needs its inputs intact
        self.body = body
        self.head = nn.Linear(512, classes)

    def features(self, x: Tensor) -> Tensor:
        h: Tensor = self.body(x)
        return h
