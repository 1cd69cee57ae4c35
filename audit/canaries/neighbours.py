"""Replay on neighbours: the sensitivity that is really there, measured without statistics.

Cebere et al. 2026, arXiv:2602.17454: run a mechanism on neighbouring inputs with the same randomness;
what its outputs differ by is a lower bound on its sensitivity, and above the declared one it refutes
the claim with certainty. Here the inputs are messages before the wire, of every size and place that a
clip has to deal with: a difference of noise that depends on the message shows up as well.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedaudit.audit.canaries.carrier import COUNTS, SPARE, Carrier, Channel, Floats
from fedaudit.audit.canaries.residuals import Check
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection

TOLERANCE = 1e-4  # relative: clips divide in single precision


def sensitivity(
    mechanism: Callable[[Floats], Floats], inputs: Sequence[tuple[Floats, Floats]], order: int = 2
) -> float:
    """The largest distance of outputs over pairs of neighbours; `order` 1 for Laplace noise.

    `mechanism` draws the same randomness for every input.
    """
    return max(float(np.linalg.norm(mechanism(x) - mechanism(y), order)) for x, y in inputs)


def pairs(carrier: Carrier, declared: Release) -> list[tuple[Floats, Floats]]:
    """Neighbouring messages: one client's message against none, or against any other.

    Small ones, just below and far above the clip; along one coordinate, in each tensor, and spread
    over all. Of counts, one example more.
    """
    d, reach = carrier.d, (declared.sensitivity or 1.0)
    zero = np.zeros(d)
    if carrier.kind in COUNTS:
        one, other = carrier.canary(0, 1), carrier.canary(1, 1)
        replaced = declared.adjacency == "replace_one"
        return [(one, other)] if replaced else [(one, zero), (other, zero)]
    rng = np.random.default_rng(0)  # fixed: the measurement is the same wherever it is repeated
    first, last = np.zeros(d), np.zeros(d)
    first[0], last[-1] = 1, 1
    spread = np.ones(d)
    both = np.concatenate([np.ones(d - SPARE) / math.sqrt(d - SPARE), np.ones(SPARE) / math.sqrt(SPARE)])
    found = []
    for direction in (first, last, spread, both, rng.normal(size=d)):
        unit = direction / np.linalg.norm(direction)
        for size in (0.01, 0.999, 10.0, 1000.0):
            x = unit * size * reach
            found.append((x, -x if declared.adjacency == "replace_one" else zero))
    return found


def replay(
    carrier: Carrier, protections: Sequence[Protection], streams: Streams, declared: Release
) -> tuple[float, Check]:
    """The measured sensitivity of what happens on the wire, and whether it is what was declared."""

    def mechanism(x: Floats) -> Floats:
        channel = Channel(carrier, protections, streams)  # anew: the same noise for every message
        try:
            return channel.read(0, 0, x)
        finally:
            channel.close()

    order = 2 if declared.mechanism == "gaussian" else 1
    measured = sensitivity(mechanism, pairs(carrier, declared), order)
    said = declared.sensitivity or 0.0
    # what single precision, and rounding that the ledger states, can make of noise that should cancel
    blur = (1e-6 * declared.noise_std + declared.resolution) * carrier.d ** (1 / order)
    return measured, Check(
        name="sensitivity by replay",
        passed=measured <= said * (1 + TOLERANCE) + blur,
        statistic=measured,
        limit=said,
        text=f"two neighbouring messages, under the same noise, left the wire {measured:.4g} apart; "
        f"the ledger says {said:.4g}",
        failure_rate=0.0,
    )
