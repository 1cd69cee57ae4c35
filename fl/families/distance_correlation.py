"""Distance correlation: how far two sets of rows depend on each other, in any way.

Szekely, Rizzo, Bakirov. Measuring and testing dependence by correlation of distances. Annals of Statistics 35(6),
2007.
"""

import torch
from torch import Tensor


def distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """The distance correlation of x [n, ...] and z [n, ...], from 0 to 1; 0 where either is constant.

    Szekely, Rizzo, Bakirov. Annals of Statistics 35(6), 2007, eq. 2.8 to 2.10.
    """
    a, b = _centre(x), _centre(z)
    scale = (a.square().mean() * b.square().mean()).sqrt()
    shared = (a * b).mean().clamp(min=0)
    tiny = torch.finfo(a.dtype).tiny
    return torch.where(scale > tiny, (shared / scale.clamp(min=tiny) + tiny).sqrt(), torch.zeros_like(scale))


def _centre(x: Tensor) -> Tensor:
    """[n, n] distances of rows, with means of rows and columns taken out; smooth where two rows are equal."""
    flat = x.flatten(1)
    flat = flat if flat.is_floating_point() else flat.float()
    squares = (flat[:, None] - flat[None]).square().sum(-1)
    same = squares <= torch.finfo(squares.dtype).tiny
    d = torch.where(same, torch.zeros_like(squares), torch.where(same, torch.ones_like(squares), squares).sqrt())
    return d - d.mean(0, keepdim=True) - d.mean(1, keepdim=True) + d.mean()
