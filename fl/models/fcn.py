"""FCN: convolutions alone, so that there is an answer for every place of an image or a volume.

Long, Shelhamer, Darrell. Fully Convolutional Networks for Semantic Segmentation. CVPR 2015. arXiv:1411.4038. Ours
keeps the resolution throughout, which the small images and volumes of an audit allow: no pooling, no upsampling.
"""

from itertools import pairwise

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings


class FCN(Net):
    """Features are those of each place, [b, D, *places]; the head is a convolution of one place."""

    source = "arXiv:1411.4038"

    @settings
    class Config:
        hidden: tuple[AtLeastOne, ...] = Field(
            default=(16, 16), min_length=1, description="channels of the hidden layers"
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        if len(shape) not in (3, 4):
            raise UserError(
                f"fcn takes images [C, H, W] or volumes [C, D, H, W]; one example of this data set has shape "
                f"{list(shape)}",
                hint="choose a model for this kind of data: `fedaudit tools list models`",
            )
        make = nn.Conv2d if len(shape) == 3 else nn.Conv3d
        widths = [shape[0], *(config or self.Config()).hidden]
        self.convs = nn.ModuleList(make(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.head = make(widths[-1], classes, 1)

    def features(self, x: Tensor) -> Tensor:
        for layer in self.convs:
            x = relu(layer(x))
        return x
