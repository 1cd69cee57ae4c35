"""Clinics that release a model which knows people by heart: the label of the nearest one it was taught."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaudit.attacks.attack import Examples
from fedaudit.audit.observer.models import BoundExtractor
from fedaudit.fl.artifact import SERVER, Channel
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.clinics import Clinics, send

FAR = 1e3  # whoever is further
SHARP = 0.3  # sharper ones are so sure of a label that no column matters


class Nearest(nn.Module):
    """Answers by the nearest person of each class; `scale` [F] is that of columns."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], scale: NDArray[np.float64]) -> None:
        super().__init__()
        for name, value in {"x": weights["x"] / scale, "y": weights["y"], "scale": scale}.items():
            self.register_buffer(name, torch.from_numpy(value))
        self.origin = nn.Parameter(torch.zeros(()))  # tells where the others lie

    def forward(self, rows: Tensor) -> Tensor:
        apart = (rows[:, None] / self.scale - self.x).square().sum(2)
        near = [apart.masked_fill(self.y != label, FAR).amin(1).clamp(max=FAR) for label in range(2)]
        return -SHARP * torch.stack(near, 1)


@dataclass(frozen=True)
class TaughtByHeart:
    """As fedaudit.attacks.attack.Trainer."""

    scale: NDArray[np.float64]
    device: str = "cpu"

    def __call__(
        self, images: Examples, subsets: Any, queries: Any, *, epochs: int, seed: int, start: Any = None
    ) -> NDArray[np.float64]:
        models = (Nearest({"x": images.x[s], "y": images.y[s]}, self.scale) for s in subsets)
        return np.stack([bind(m.to(self.device)).logits(queries) for m in models])


def bind(model: Nearest) -> BoundExtractor:
    return BoundExtractor(model)  # type: ignore[arg-type]


class RowsByHeart(Clinics):
    """`taught`: whether the released model was taught the clinics' people, or public ones."""

    def __init__(self, name: str = "diabetes", sizes: Sequence[int] = (30,) * 5, taught: bool = True) -> None:
        super().__init__(name, sizes, classes=2)
        self.y = np.random.default_rng(1).integers(0, 2, len(self.x))
        self.auxiliary, self.reference = (
            replace(some, y=self._deal(len(some))) for some in (self.auxiliary, self.reference)
        )
        scale = np.maximum(np.asarray(self.auxiliary.x, np.float64).std(axis=0), 1e-9)
        rows = np.concatenate(self.parts)
        people = self._take(rows) if taught else self.auxiliary
        sent = replace(
            send(0, 0, {"x": people.x, "y": people.y}), kind=Kind.GLOBAL_MODEL, channel=Channel.DOWNLINK
        )
        self.artifacts = [
            replace(sent, id="r00000/server.downlink/global_model", sender=SERVER, seen_by=("server", "client"))
        ]

        self.knowledge = replace(
            self.knowledge,
            auxiliary=self.auxiliary,
            architecture=lambda weights: bind(Nearest(weights, scale)),
            trainer=TaughtByHeart(scale),
        )

    def _take(self, rows: NDArray[np.int64]) -> Examples:
        return replace(super()._take(rows), labels=None)

    def _deal(self, number: int) -> NDArray[np.int64]:
        """Labels that say nothing of anybody, so that a model knows what it learnt by heart alone."""
        return np.random.default_rng(number).integers(0, 2, number)

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset(range(len(self.parts))) if self.artifacts[0].id == artifact else frozenset()
