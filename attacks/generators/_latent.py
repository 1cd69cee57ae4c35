"""Latent search: the image nearest to a given one that a generator with known weights can make.

Chen, Yu, Zhang, Fritz. GAN-Leaks. CCS 2020. arXiv:1909.03935, sec. 4.4 (full white box): for an image x,

    R(x) = G(z*),   z* = argmin_z ||x - G(z)||

for many images at once, by Adam over all their z together. Changed: pixels alone, without LPIPS, whose
network is no part of this; Adam where the paper has L-BFGS, since images of one batch do not share a
line search; z stays on the sphere of radius sqrt(latent), where the paper's penalty (||z||^2 - latent)^2
is nought; and it starts from the z of the nearest of a few random images, the best of which goes on
after a quarter of the steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, GeneratorArchitecture
from fedaudit.attacks.evaluation.searches import choose_rows
from fedaudit.fl.runtime.eager import eager

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int = 40  # of Adam
    starts: int = 3  # for each image
    pool: int = 1000  # random images that starts are chosen from
    lr: float = 0.1
    batch: int = 256  # searches run at once


@dataclass(frozen=True)
class Reconstructions:
    """For each image [n], the Euclidean distance of its reconstruction; that [n, C, H, W]."""

    distance: Floats
    image: Floats


class LatentSearch:
    """One generator with the seed of its random images; images queried before are remembered."""

    def __init__(self, known: GeneratorArchitecture, weights: Any, settings: Settings, seed: int) -> None:
        self._known, self._weights, self._settings, self._seed = known, weights, settings, seed
        self._memory: dict[tuple[bytes, int], tuple[float, Floats]] = {}

    def __call__(self, images: Examples) -> Reconstructions:
        # the label is part of the question only where the generator is wanted one
        labels = images.y if self._known.classes else np.zeros_like(images.y)
        keys = [(np.float32(x).tobytes(), int(y)) for x, y in zip(images.x, labels, strict=True)]
        new = {k: i for i, k in enumerate(keys) if k not in self._memory}
        rows = np.array(sorted(new.values()), np.int64)
        for k, d, p in zip([keys[i] for i in rows], *self._search(images.x[rows], labels[rows]), strict=True):
            self._memory[k] = float(d), p
        if not keys:
            return Reconstructions(np.zeros(0), images.x)
        distance, image = zip(*(self._memory[k] for k in keys), strict=True)
        return Reconstructions(np.array(distance), np.stack(image))

    def _search(self, x: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
        import torch

        s, latent = self._settings, self._known.latent
        make = self._known.maker(self._weights)
        stream = torch.Generator().manual_seed(self._seed)
        place = self._known.device
        pool = _on_sphere(torch.randn(s.pool, latent, generator=stream)).to(place)
        queried = torch.arange(s.pool, device=place) % max(1, self._known.classes)
        with torch.no_grad():
            made = torch.cat(
                [make(pool[i : i + s.batch], queried[i : i + s.batch]) for i in range(0, s.pool, s.batch)]
            ).flatten(1)

        def descend(z: Any, target: Any, label: Any, steps: int) -> tuple[Any, Any, Any]:
            """Of every row: the best z on the way, its squared distance and its image."""
            z = z.clone().requires_grad_()
            adam = eager(torch.optim.Adam)([z], s.lr)
            best, where = torch.full((len(z),), torch.inf, device=place), z.detach().clone()
            image = torch.zeros_like(target)
            for step in range(steps + 1):
                out = make(z, label)
                gap = (out - target).square().flatten(1).sum(1)
                better = gap.detach() < best
                found = gap.detach(), z.detach(), out.detach()
                best, where, image = choose_rows(better, found, (best, where, image))
                if step < steps:
                    [z.grad] = torch.autograd.grad(gap.sum(), z)
                    adam.step()
                    with torch.no_grad():
                        z.copy_(_on_sphere(z))
            return where, best, image

        found: list[tuple[Any, Any]] = [
            (torch.zeros(0, device=place), torch.zeros(0, *x.shape[1:], device=place))
        ]
        size, first = max(1, s.batch // s.starts), s.steps // 4
        for i in range(0, len(x), size):
            target = torch.from_numpy(np.ascontiguousarray(x[i : i + size], np.float32)).to(place)
            label = torch.from_numpy(np.ascontiguousarray(y[i : i + size])).to(place)
            away = torch.cdist(target.flatten(1), made)
            away[label[:, None] != queried] = torch.inf
            starts = pool[away.topk(s.starts, dim=1, largest=False).indices.flatten()]
            many = [t.repeat_interleave(s.starts, 0) for t in (target, label)]
            z, gap, _ = descend(starts, many[0], many[1], first)
            choice = gap.reshape(-1, s.starts).argmin(1) + s.starts * torch.arange(len(target), device=place)
            _, gap, image = descend(z[choice], target, label, s.steps - first)
            found.append((gap.sqrt(), image))
        gaps, images = (torch.cat(part) for part in zip(*found, strict=True))
        return gaps.cpu().numpy(), images.cpu().numpy()


def _on_sphere(z: Any) -> Any:
    return z * (z.shape[1] ** 0.5 / z.norm(dim=1, keepdim=True))
