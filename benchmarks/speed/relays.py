"""Rounds of GANDALF's relays under failures, with and without fault tolerance: length and contributors.

`python -m benchmarks.speed.relays`. Nothing is trained: a round is planned before it runs (fl/families/relay.py).
One mediator, ten clients whose task takes a tenth of the timeout besides its delay, 400 rounds a cell; `factor`
is the length without tolerance over that with it. The paper prints 1.44, 2.88 and 4.39 for its failures at .1, .4
and .7.
"""

from dataclasses import dataclass

import numpy as np

from fedaudit.fl.clients.failures import FailureConfig, RandomFaults
from fedaudit.fl.families.relay import ToleranceConfig, plan
from fedaudit.fl.runtime.streams import Streams

KINDS = ("delay", "transient", "crash")
SHARES = (0.1, 0.4, 0.7)
PAPER = {0.1: 1.44, 0.4: 2.88, 0.7: 4.39}
CLIENTS, ROUNDS = 10, 400


@dataclass(frozen=True)
class Working(RandomFaults):
    """Random faults of clients that also have something to compute."""

    work: float = 0.1

    def delay(self, client: int, request: int) -> float:
        return self.work + super().delay(client, request)


def cell(tolerance: bool, heartbeats: bool = True, **kind: float) -> tuple[float, float]:
    """Mean length and mean number of contributors of a round."""
    failures, rule = FailureConfig(heartbeats=heartbeats, **kind), ToleranceConfig(tolerance=tolerance)  # type: ignore[arg-type]
    rounds = [plan(range(CLIENTS), {}, rule, failures, Working(failures, Streams(7), t)) for t in range(ROUNDS)]
    return float(np.mean([r.time for r in rounds])), float(np.mean([len(r.contributors) for r in rounds]))


def main() -> None:
    print("failure    share  seen   length with / without  factor  (paper)   contributors with / without")
    for kind in KINDS:
        for share in SHARES:
            for heartbeats in (True, False) if kind != "delay" else (True,):
                (on, kept), (off, plain) = (cell(t, heartbeats, **{kind: share}) for t in (True, False))
                print(
                    f"{kind:10} {share:4.1f}   {'yes' if heartbeats else 'no':4} {on:9.2f} / {off:7.2f} "
                    f"{off / on:12.2f}   ({PAPER[share]:.2f}) {kept:10.2f} / {plain:5.2f}"
                )


if __name__ == "__main__":
    main()
