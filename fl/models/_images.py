"""What models of images share: their input is checked, and the flattened size computed from it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from fedaudit.fl.runtime.errors import UserError


def channels(model: str, shape: tuple[int, ...]) -> int:
    """The number of channels of [C, H, W] images; raises UserError where the data are no images."""
    if len(shape) != 3:
        raise UserError(
            f"{model} takes images [C, H, W]; one example of this data set has shape {list(shape)}",
            hint="choose a model for this kind of data: `fedaudit tools list models`",
        )
    return shape[0]


def flat_size(model: str, maps: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> int:
    """How many numbers `maps` makes of one image; raises UserError where the image is too small."""
    try:
        with torch.no_grad():
            return maps(torch.zeros(1, *shape)).flatten(1).shape[1]
    except RuntimeError as error:  # a kernel or a pooling window larger than what is left
        raise UserError(
            f"{model} cannot take images of {' x '.join(map(str, shape[1:]))} pixels: {error}",
            hint="small_cnn, mlp and logreg take small images",
        ) from error


def pool_then(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """2 x 2 max-pooling of the activation of [b, C, H, W].

    The activation comes last: a non-decreasing function commutes with the maximum, values and
    gradients alike, and then has a quarter of the numbers to work on.
    """
    return activation(max_pool2d(x, 2))
