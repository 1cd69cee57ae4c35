"""Many calls on one update, as the law of the noise reads them.

What is kept of a call: sums and squares by array, the order of the calls of one filter, and some numbers of every
array.
"""

from dataclasses import dataclass

import numpy as np

from fedaudit.audit.plays.mechanism import Floats, Player

CHAIN = 4  # calls of one filter in a row
MOST_CALLS, FEWEST_CALLS = 4_000, 32
NUMBERS = 2e8  # in all calls together
KEPT = 4e6  # of them
FIRST_SEED = 1000


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Noise of m calls on one update; the calls of one filter follow each other."""

    kept: Floats  # [m, k], around the mean of its column
    columns: dict[str, slice]  # name of an array -> its columns of `kept`
    squares: Floats  # [CHAIN, arrays], sums around the mean of each number, by place in the row of calls
    counts: Floats  # [arrays], numbers of an array
    filters: int  # m / CHAIN
    means: Floats  # [m, arrays], of a whole array
    repeated: int  # calls that sent the same bytes as another

    @property
    def deviations(self) -> Floats:
        """[CHAIN, arrays]"""
        return np.sqrt(self.squares / (self.counts * (self.filters - 1)))


def draw_sample(player: Player, row: Floats) -> Sample:
    """Play many calls on one update."""
    assert player.sent is not None
    parts = {n: at for n, at in player.sent.parts.items() if at.stop > at.start}
    size = player.sent.size
    calls = int(min(MOST_CALLS * player.effort, max(FEWEST_CALLS, NUMBERS / size)))
    filters = max(2, calls // CHAIN)
    share = min(1.0, KEPT / (filters * CHAIN * size))
    starts, columns, first = [], {}, 0
    for name, at in parts.items():
        few = min(at.stop - at.start, max(8, int(share * (at.stop - at.start))))
        starts.append(np.arange(at.start, at.start + few))
        columns[name] = slice(first, first + few)
        first += few
    index = np.concatenate(starts)
    kept, means, seen, repeated = np.empty((filters * CHAIN, first)), [], set(), 0
    total, squares = np.zeros((CHAIN, size)), np.zeros((CHAIN, size))
    edges = np.array([at.start for at in parts.values()])
    counts = np.array([at.stop - at.start for at in parts.values()], float)
    shift = None
    for i in range(filters):
        for t, sent in enumerate(player.play([row] * CHAIN, FIRST_SEED + i)):
            shift = sent.copy() if shift is None else shift
            sent = sent - shift  # squares of large numbers would leave nothing of the noise
            kept[i * CHAIN + t] = sent[index]
            total[t] += sent
            squares[t] += sent**2
            means.append(np.add.reduceat(sent, edges) / counts)
            mark = hash(sent.tobytes())
            repeated += mark in seen
            seen.add(mark)
    spread = np.maximum(squares - total**2 / filters, 0)
    by_place = kept.reshape(filters, CHAIN, -1)
    whole = np.array(means)
    return Sample(
        kept=(by_place - by_place.mean(0)).reshape(filters * CHAIN, -1),
        columns=columns,
        squares=np.add.reduceat(spread, edges, axis=1),
        counts=counts,
        filters=filters,
        means=whole - np.tile(whole.reshape(filters, CHAIN, -1).mean(0), (filters, 1)),
        repeated=repeated,
    )
