"""How many generated images a client takes from whom, and what it keeps of them. GANDALF, sec. 3.3.

With n_c a client's examples of class c, H_c = max n - n_c is what balance asks for. The columns of
A [C, J] are the label distributions of the J generators on offer, and B = tau A^+ H the number of
images wanted from each, below zero meaning none (`pinv`, the paper's). Clipping after the fact can
overshoot badly: where the pseudo-inverse says (-1.4, 14.9) for a shortage of 14 it takes 14 images
of the second generator's mix, whatever they show. `nnls` minimises ||A B - H|| with B >= 0 instead.

What was generated is then fitted to the target floor(tau H_c): a surplus is dropped; a shortage is
made up from own images, slightly turned, shifted and (natural images) mirrored, at most doubling
the class; what is missing still, is missing.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.families.grouping import divergence

Floats = NDArray[np.float64]
Solver = Literal["nnls", "pinv"]
_ROUNDING = 1e-9  # of 2 found as 1.9999999999: whole numbers stay themselves


def shortage(counts: Floats) -> Floats:
    """H [C] of counts [C]."""
    return np.asarray(counts.max() - counts, np.float64)


def select_offers(own: Floats, offers: Floats, most: int) -> list[int]:
    """The `most` rows of offers [J, C] that differ most from distribution own [C], ascending."""
    far = divergence(own[None], offers)
    return sorted(np.argsort(-far, kind="stable")[:most].tolist())


def solve_requests(mixes: Floats, missing: Floats, share: float, solver: Solver = "nnls") -> list[int]:
    """B [J], whole numbers, for mixes A [C, J] and shortage H [C]; `share` is tau."""
    from scipy.optimize import nnls

    exact = nnls(mixes, missing)[0] if solver == "nnls" else np.linalg.pinv(mixes) @ missing
    return [int(np.floor(b)) for b in np.maximum(share * exact, 0) + _ROUNDING]


def targets(counts: Floats, share: float) -> list[int]:
    """floor(tau H_c) for every class."""
    return [int(np.floor(share * h + _ROUNDING)) for h in shortage(counts)]


def select_images(
    x: Tensor,
    y: Tensor,
    made: Tensor,
    labels: Tensor,
    target: Sequence[int],
    rng: torch.Generator,
    *,
    mirror: bool = False,
) -> tuple[Tensor, Tensor]:
    """Images to add to own x [n, C, H, W] and y [n], and their labels.

    Keeps the first target[c] of those `made` [m, C, H, W] that are labelled c, and adds altered own
    images up to the target, no more than there are of the class.
    """
    images, classes = [], []
    for c, most in enumerate(target):
        kept = made[labels == c][:most]
        own = x[y == c]
        short = min(most - len(kept), len(own))
        order = torch.randperm(len(own), generator=rng)[:short].to(x.device)
        both = torch.cat([kept, alter_images(own[order], rng, mirror=mirror)])
        images.append(both)
        classes.append(torch.full((len(both),), c, dtype=y.dtype, device=y.device))
    return torch.cat(images), torch.cat(classes)


def alter_images(x: Tensor, rng: torch.Generator, *, mirror: bool = False) -> Tensor:
    """Copies of [n, C, H, W]: each turned by up to 10 degrees and shifted by up to 5 % of its size."""
    n = len(x)
    if not n:
        return x
    turn, across, down = (2 * torch.rand(3, n, generator=rng) - 1).to(x)
    turn = turn * (10 * torch.pi / 180)
    flip = torch.where(torch.rand(n, generator=rng) < 0.5, -1.0, 1.0) if mirror else torch.ones(n)
    flip = flip.to(x)
    # an affine grid's unit is half an image
    rows = [
        torch.stack([flip * turn.cos(), -turn.sin(), 0.1 * across], 1),
        torch.stack([flip * turn.sin(), turn.cos(), 0.1 * down], 1),
    ]
    grid = torch.nn.functional.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return torch.nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
