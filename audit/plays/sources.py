"""Every usual source of randomness, seeded: with the same seed a mechanism draws the same noise.

Reached are numpy (its global generator, and `default_rng()` without a seed), torch, `random`,
`random.SystemRandom`, `secrets`, `uuid`, `os.urandom` and the clock. Not reached are files such as /dev/urandom,
`random.Random()` and `torch.Generator().seed()`, whose seeds are drawn below Python.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

START = 1.7e9  # of the clock, in seconds
TICK = 1e-6  # between two looks at it: who waits for it to move does not wait for ever
DAY = 86_400  # between the clocks of two seeds
SECONDS = ("time", "monotonic", "perf_counter")
LOOKS = dict.fromkeys(SECONDS, 1.0) | {f"{name}_ns": 1e9 for name in SECONDS}


@contextmanager
def reach_sources() -> Iterator[Callable[[int], None]]:
    """Put every source within reach of a seed; yields the function that seeds them all."""
    torch: Any = sys.modules.get("torch")
    entropy = random.Random(0)
    held = _Clock()
    before = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()

    def plant(seed: int) -> None:
        entropy.seed(seed)
        held.now = START + DAY * seed
        random.seed(seed)
        np.random.seed(seed)
        if torch:
            torch.default_generator.manual_seed(seed)
            for generator in torch.cuda.default_generators if torch.cuda.is_initialized() else ():
                generator.manual_seed(seed)

    with ExitStack() as stack:
        for owner, name in ((os, "urandom"), (random, "_urandom")):
            stack.enter_context(patch.object(owner, name, entropy.randbytes))
        stack.enter_context(patch.object(np.random.bit_generator, "randbits", entropy.getrandbits))
        held.put_into(stack)
        try:
            yield plant
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            if torch:
                torch.set_rng_state(before[2])


@contextmanager
def hold_clock(now: float) -> Iterator[None]:
    """The clock alone stands still, at `now` seconds."""
    held = _Clock()
    held.now = now
    with ExitStack() as stack:
        held.put_into(stack)
        yield


class _Clock:
    """What `time` says."""

    def __init__(self) -> None:
        self.now = START

    def put_into(self, stack: ExitStack) -> None:
        for name, unit in LOOKS.items():
            stack.enter_context(patch.object(time, name, self._make_look(unit)))

    def _make_look(self, unit: float) -> Callable[[], float]:
        def look() -> float:
            self.now += TICK
            return int(self.now * unit) if unit > 1 else self.now

        return look
