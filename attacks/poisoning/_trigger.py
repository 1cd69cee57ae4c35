"""Triggers of backdoors: what is put into an image so that the model gives the attacker's answer.

patch      3 x 3 white pixels, one pixel from the bottom right corner (Gu et al. BadNets. 2017. arXiv:1708.06733)
blend      the image with a share of a fixed pattern of noise (Chen et al. 2017. arXiv:1712.05526)
edge_case  the negative of the image: inputs that no honest client has (Wang et al. NeurIPS 2020. arXiv:
           2007.05084, who take images of another data set; changed, since there is none)
dba        the patch in four parts, of which each client trains with one and the attacker uses all
           (Xie et al. DBA. ICLR 2020)
"""

from typing import Literal

import torch
from torch import Tensor

Trigger = Literal["patch", "blend", "edge_case", "dba"]
SIDE, GAP = 3, 1
BLEND = 0.2
PARTS = (
    (slice(0, 2), slice(0, 2)),
    (slice(0, 2), slice(2, 3)),
    (slice(2, 3), slice(0, 2)),
    (slice(2, 3), slice(2, 3)),
)


def stamped(images: Tensor, trigger: Trigger, part: int | None = None) -> Tensor:
    """Images [N, C, H, W] in [0, 1] with the trigger; `part` 0 to 3 of the patch, with dba."""
    if trigger == "edge_case":
        return 1 - images
    if trigger == "blend":
        pattern = torch.rand(images.shape[1:], generator=torch.Generator().manual_seed(0)).to(images)
        return (1 - BLEND) * images + BLEND * pattern
    out = images.clone()
    height, width = images.shape[2:]
    corner = out[:, :, height - GAP - SIDE : height - GAP, width - GAP - SIDE : width - GAP]
    rows, columns = PARTS[part] if trigger == "dba" and part is not None else (slice(None), slice(None))
    corner[:, :, rows, columns] = 1.0
    return out


def stamped_normalised(
    x: Tensor, mean: tuple[float, ...], std: tuple[float, ...], trigger: Trigger, part: int | None = None
) -> Tensor:
    """The same of images as models get them: (pixels - mean) / std, channel by channel."""
    m, s = torch.tensor(mean).reshape(1, -1, 1, 1).to(x), torch.tensor(std).reshape(1, -1, 1, 1).to(x)
    return (stamped(x * s + m, trigger, part) - m) / s
