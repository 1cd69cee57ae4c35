"""The game, which assumes nothing of the noise: from what was sent, guess which of two updates it was.

A statistic and a threshold are chosen on some calls; the errors are counted on others, by Clopper and Pearson at
LEVEL. It certifies gross faults alone: n calls show at most about ln(n) - 2.5.
"""

from collections.abc import Iterator

import numpy as np

from fedaudit.audit.mechanism.answers import Answer, Promise, find_nothing, note, refute
from fedaudit.audit.mechanism.bounds import bound_below
from fedaudit.audit.mechanism.tape import DENSE, Tape
from fedaudit.audit.plays.mechanism import Crashed, Floats
from fedaudit.reports.format import number

PAIRS = ("3000 clips long", DENSE, "one number", "all equal", "sparse")
STATISTICS = ("the likelier direction", "the length", "the number of zeros", "the direction of the update")
PILOT = 100  # calls on each of two updates, to choose a pair and a statistic
CUTS = 100  # that are tried
CALLS, FEWEST = 3_000, 40  # on each of the two that were chosen
NUMBERS = 1.2e8  # in all of them together
FIRST, SECOND = 500_000, 600_000  # seeds


class Game:
    """Two updates, four statistics, one of them chosen before the errors are counted."""

    def __init__(self, tape: Tape, promise: Promise) -> None:
        self.tape, self.promise = tape, promise
        self.least = 0.0

    def ask(self) -> Iterator[Answer]:
        """Question 7."""
        p, size = self.promise, max(1, self.tape.player.given.size)
        if NUMBERS / 2 / size < FEWEST:
            yield note(7, f"Not played: of {size:,} numbers so few calls can be made that they show nothing.")
            return
        pilot = int(min(PILOT * self.tape.player.effort, max(8, NUMBERS / 20 / size)))
        calls = int(min(CALLS * self.tape.player.effort, max(FEWEST, NUMBERS / 2 / size)))
        best: tuple[float, str, int, Floats] | None = None
        names = [n for n in PAIRS if n in self.tape.updates]
        for name in names[: 3 if size > 300_000 else None]:
            ours, theirs, along = self._watch(name, pilot, FIRST, None)
            spread = np.sqrt((ours.var(0) + theirs.var(0)) / 2)
            apart = np.abs(ours.mean(0) - theirs.mean(0)) / np.maximum(
                spread, 1e-12 * np.abs(ours).max(0) + 1e-300
            )
            which = int(np.argmax(apart))
            if best is None or apart[which] > best[0]:
                best = (float(apart[which]), name, which, along)
        if best is None:
            return
        _, name, which, along = best
        ours, theirs, _ = self._watch(name, calls, SECOND, along)
        half = calls // 3
        cut, sign = _learn(ours[:half, which], theirs[:half, which], p.delta)
        hit, alarm = sign * ours[half:, which] > cut, sign * theirs[half:, which] > cut
        rest = len(hit)
        self.tape.pairs += 1
        self.least = bound_below(int(hit.sum()), rest, int(alarm.sum()), rest, p.delta)
        most = bound_below(rest, rest, 0, rest, p.delta)
        words = (
            f"Told apart by {STATISTICS[which]}, an update ({name}) and its neighbour show at least epsilon "
            f"{number(self.least)} whatever the law ({rest:,} calls each, which can show {number(most)})"
        )
        tell = refute if self.least > p.epsilon else find_nothing
        yield tell(7, f"{words}; {p.epsilon:g} is claimed.", epsilon=self.least, calls=float(rest))

    def _watch(self, name: str, calls: int, seed: int, along: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Statistics [calls, 4] of the update and of its neighbour, and the direction that was learned."""
        tape, row = self.tape, self.tape.updates[name]
        near = tape.updates[tape.base] if self.promise.neighbours == "remove" else -row
        if along is None:
            along = np.zeros(0)
            few = max(4, calls // 4)
            try:
                here = [tape.player.play([row], seed + 7_000 + i)[0] for i in range(few)]
                there = [tape.player.play([near], seed + 8_000 + i)[0] for i in range(few)]
            except Crashed:
                return np.zeros((2, 4)), np.zeros((2, 4)), along
            spread = np.var(np.stack(here), axis=0) + np.var(np.stack(there), axis=0)
            along = (np.mean(here, 0) - np.mean(there, 0)) / (spread + 1e-12 * (spread.max() or 1.0))
        return self._read(row, row, along, calls, seed), self._read(near, row, along, calls, seed + 30_000), along

    def _read(self, row: Floats, way: Floats, along: Floats, calls: int, seed: int) -> Floats:
        found = np.zeros((calls, 4))
        for i in range(calls):
            sent = self.tape.player.play([row], seed + i)[0]
            straight = float(sent @ way) if sent.size == way.size else 0.0
            found[i] = float(sent @ along), float(sent @ sent), float((sent == 0).sum()), straight
        return found


def _learn(ours: Floats, theirs: Floats, delta: float) -> tuple[float, int]:
    """The threshold, and the side of it, that show the most of which it was."""
    best, chosen = -1.0, (0.0, 1)
    for sign in (1, -1):
        first, second = sign * ours, sign * theirs
        both = np.unique(np.concatenate([first, second]))
        cuts = (both[1:] + both[:-1]) / 2
        for cut in cuts[:: max(1, len(cuts) // CUTS)]:
            hits, alarms = int((first > cut).sum()), int((second > cut).sum())
            got = bound_below(hits, len(first), alarms, len(second), delta)
            if got > best:
                best, chosen = got, (float(cut), sign)
    return chosen
