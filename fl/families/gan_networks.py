"""The networks of a WGAN-GP for small images, plain or conditional.

Changed from GANDALF's, which are for 32 x 32: any size from 4 pixels, by nearest-neighbour upsampling
from a quarter of it; and a norm over each image (GroupNorm with one group) where the generator had
BatchNorm, whose running statistics would be handed on and noised like weights. As there: no biases.
Conditional networks get the class besides, one-hot: as inputs, and as constant planes.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu, relu


class Generator(nn.Module):
    """z [n, latent] to images [n, C, H, W] in [-1, 1]."""

    def __init__(self, shape: tuple[int, ...], latent: int, width: int, classes: int = 0) -> None:
        super().__init__()
        channels, height, across = shape
        self.sizes = [(-(-height // 4), -(-across // 4)), (-(-height // 2), -(-across // 2)), (height, across)]
        self.width, first = width, self.sizes[0][0] * self.sizes[0][1]
        self.fc = nn.Linear(latent + classes, 2 * width * first, bias=False)
        self.norm0 = nn.GroupNorm(1, 2 * width)
        self.conv1 = nn.Conv2d(2 * width, width, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(1, width)
        self.conv2 = nn.Conv2d(width, channels, 3, padding=1, bias=False)

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        """`label` [n, classes], one-hot, where the generator is conditional."""
        z = z if label is None else torch.cat([z, label], 1)
        x = relu(self.norm0(self.fc(z).reshape(len(z), 2 * self.width, *self.sizes[0])))
        x = relu(self.norm1(self.conv1(interpolate(x, self.sizes[1]))))
        out: Tensor = self.conv2(interpolate(x, self.sizes[2])).tanh()
        return out


class Critic(nn.Module):
    """Images [n, C, H, W] to scores [n]; higher means: more like the training images."""

    def __init__(self, shape: tuple[int, ...], width: int, classes: int = 0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0] + classes, width, 4, 2, 1, bias=False)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False)
        self.norm = nn.GroupNorm(1, 2 * width)
        quarter = (shape[1] // 2 // 2) * (shape[2] // 2 // 2)
        self.fc = nn.Linear(2 * width * quarter, 1, bias=False)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        if label is not None:
            planes = label[:, :, None, None].expand(-1, -1, *x.shape[2:])
            x = torch.cat([x, planes], 1)
        x = leaky_relu(self.conv1(x), 0.2)
        x = leaky_relu(self.norm(self.conv2(x)), 0.2)
        out: Tensor = self.fc(x.flatten(1))[:, 0]
        return out
