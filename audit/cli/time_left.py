"""The time left of a phase, from what its own steps took in this run; nothing where that tells nothing."""

import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

BLOCKS = 4  # of the steps that are done; each takes about as long as the others
LIKE = 2.0  # by how much blocks may differ: then so may what is stated


class TimeLeft:
    """Of one phase. Steps that have names are different kinds of work: none tells how long another takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.marks: list[tuple[float, float]] = []  # steps done, and when that was first said
        self.is_named = False

    def note(self, done: int, present: str) -> None:
        """Remember when a step ended, and whether steps have names."""
        self.is_named = self.is_named or bool(present)
        if not self.marks or done > self.marks[-1][0]:
            self.marks.append((done, self.clock()))

    def estimate(self, total: int) -> float | None:
        """Seconds; None before a quarter of the steps is done, and where some took much longer than others."""
        if self.is_named or not self.marks:
            return None
        (first, began), (last, ended) = self.marks[0], self.marks[-1]
        if last - first < max(BLOCKS, total / 4):
            return None
        ends = [self._find_time(first + (last - first) * i / BLOCKS) for i in range(BLOCKS + 1)]
        took = [after - before for before, after in pairwise(ends)]
        if max(took) > LIKE * min(took):
            return None
        return max(0.0, (ended - began) / (last - first) * (total - last) - (self.clock() - ended))

    def _find_time(self, steps: float) -> float:
        """When so many steps were done; between two that were noted as if work went on evenly."""
        i = bisect_left(self.marks, (steps, 0.0))
        (before, then), (after, now) = self.marks[max(0, i - 1)], self.marks[min(i, len(self.marks) - 1)]
        return now if after == before else then + (now - then) * (steps - before) / (after - before)
