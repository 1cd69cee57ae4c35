"""Clinics that release a model which knows people by heart: the label of the nearest one it was taught."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.fl.artifact import SERVER, Channel
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.clinics import Clinics, send

SHARP = 0.3  # sharper ones are so sure of a label that no column matters


class Nearest:
    """Answers by the nearest person of each class; `scale` [F] is that of columns."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], scale: NDArray[np.float64]) -> None:
        self.x, self.y, self.scale = weights["x"], weights["y"], scale

    def logits(self, images: NDArray[Any]) -> NDArray[np.float64]:
        apart = ((images[:, None] / self.scale - self.x / self.scale) ** 2).sum(axis=2)
        near = [apart[:, self.y == label].min(axis=1, initial=1e3) for label in range(2)]
        return -SHARP * np.stack(near, axis=1)


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

        def train(
            images: Examples, subsets: Any, queries: Any, *, epochs: int, seed: int, start: Any = None
        ) -> Any:
            return np.stack(
                [Nearest({"x": images.x[s], "y": images.y[s]}, scale).logits(queries) for s in subsets]
            )

        self.knowledge = replace(
            self.knowledge,
            auxiliary=self.auxiliary,
            architecture=lambda weights: Nearest(weights, scale),
            trainer=train,
        )

    def _take(self, rows: NDArray[np.int64]) -> Examples:
        return replace(super()._take(rows), labels=None)

    def _deal(self, number: int) -> NDArray[np.int64]:
        """Labels that say nothing of anybody, so that a model knows what it learnt by heart alone."""
        return np.random.default_rng(number).integers(0, 2, number)

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset(range(len(self.parts))) if self.artifacts[0].id == artifact else frozenset()
