"""What an attack builds of a claim and the truth, such as its trials: once, however many ask for it."""

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from fedaudit.attacks.attack import Claim, Truth

T = TypeVar("T")


class BuiltOnce(Generic[T]):
    """Calls `build` for a claim and a truth, and again only for others.

    What is judged is so what is counted and shown. The stream is that of the first who asks.
    """

    def __init__(self, build: Callable[[Claim, Truth, np.random.Generator], T]) -> None:
        self._build = build
        self._latest: tuple[Claim, Truth, T] | None = None

    def __call__(self, claim: Claim, truth: Truth, rng: np.random.Generator | None = None) -> T:
        """`rng`: default_rng(0) where the caller has none."""
        known = self._latest
        if known is not None and known[0] is claim and known[1] is truth:
            return known[2]
        built = self._build(claim, truth, np.random.default_rng(0) if rng is None else rng)
        self._latest = claim, truth, built
        return built
