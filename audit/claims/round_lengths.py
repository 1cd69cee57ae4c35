"""FreezeFL's column of round lengths, which needs no training: the time model and who is chosen.

`python -m fedaudit.audit.claims.round_lengths [--charge epochs|probe|really]`. 3,550 clients of eight tiers, 108
a round, 80 rounds, FEMNIST's CNN; sizes uniform or clipped normal with LEAF's mean of 227.4 and deviation of
88.9, of which 80 % is training data (LEAF's own default of 90 % does not fit the table). Every layer is taken to
be equally important: on this network 73 % of the weights are in one layer, and it alone decides. Printed beside
the paper's numbers; a star marks what differs from them by more than 3 %.

RBCS-F stands there five times. Chosen by the whole times it is the optimum. The public code chooses by the time
of the exchange alone, and adds a client that nobody chose (here in place of the last), which is of the slowest
class in every round, because clients are not shuffled there: neither of the two, nor both, gives the printed
length. The optimum comes near it where a fifth of the clients can be asked.
"""

from argparse import ArgumentParser
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.clients.time_model import MEGABYTE, TimeModel, Workload
from fedaudit.fl.devices.freezefl import FemnistCNN
from fedaudit.fl.families.freezing import decide
from fedaudit.fl.families.widths import tiers
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.selections.rbcs_f import choose

CLIENTS, CHOSEN, ROUNDS, BETA, DEADLINE, WEIGHT = 3550, 108, 80, 4.0, 1.0, 0.4
LEFT = tuple(4 * n for n in (4_377_534, 4_376_702, 4_325_438, 1_113_150, 63_550))  # bytes of what is not frozen
NARROW = tuple(4 * n for n in (286_110, 1_111_038, 2_474_846, 4_377_534))  # bytes at the widths of FjORD's tiers
STRAY = 54
WIDTHS = (0.25, 0.5, 0.75, 1.0)
Values = NDArray[np.float64]


def sizes(law: str, rng: np.random.Generator) -> Values:
    """[clients] training examples."""
    if law == "uniform":
        half = 88.9 * np.sqrt(3)
        drawn = rng.uniform(227.4 - half, 227.4 + half, CLIENTS)
    else:
        drawn = np.clip(rng.normal(227.4, 88.9, CLIENTS), 10, None)
    return np.round(0.8 * drawn)


class TimedFederation:
    """Clients with their speeds and sizes, and the rounds of each method."""

    def __init__(self, law: str, charge: str) -> None:
        streams = Streams(7)
        self.times: TimeModel = FemnistCNN().time_model(None, (), CLIENTS, streams)  # type: ignore[arg-type]
        self.n, self.charge, self.streams = sizes(law, streams.numpy("sizes", law)), charge, streams

    def tau(self, clients: NDArray[np.int64], up: Values, cost: Values) -> Values:
        """[clients] t, of their bytes up and seconds an example."""
        work, kappa = self.times.workload, self.times.capability[clients]
        exchange = (LEFT[0] + up) / MEGABYTE / work.bandwidth
        return np.asarray((exchange + cost * self.n[clients] / work.compute) / kappa)

    def draw_clients(self, round: int) -> NDArray[np.int64]:
        return self.streams.numpy("drawn", round).permutation(CLIENTS)[:CHOSEN]

    def fedavg(self, epochs: int) -> float:
        cost = np.full(CHOSEN, epochs * self.times.workload.profile[0])
        every = [self.tau(self.draw_clients(r), np.full(CHOSEN, LEFT[0]), cost).max() for r in range(ROUNDS)]
        return float(np.mean(every))

    def freezing(self, epochs: int = 3) -> tuple[float, float]:
        """Mean length, and the share of answers that froze three layers."""
        deadline, lengths, frozen = DEADLINE, list[float](), list[int]()
        cost = np.array([compute_charge(self.times.workload, n, epochs, self.charge) for n in range(5)])
        for r in range(ROUNDS):
            who = self.draw_clients(r)
            options = np.stack(
                [self.tau(who, np.full(CHOSEN, LEFT[n]), np.full(CHOSEN, cost[n])) for n in range(5)]
            )
            chosen = [decide((1.0,) * 5, options[:, k].tolist(), deadline, BETA) for k in range(CHOSEN)]
            taken = options[chosen, np.arange(CHOSEN)]
            lengths.append(float(taken.max()))
            frozen += chosen
            deadline = (1 - WEIGHT) * deadline + WEIGHT * float(taken.mean())
        return float(np.mean(lengths)), float(np.mean(np.array(frozen) == 3))

    def fjord(self, epochs: int = 3) -> float:
        tier = np.array(tiers(self.times.capability.tolist(), 4))
        cost = np.array([epochs * self.times.workload.at_width(p) for p in WIDTHS])
        lengths = []
        for r in range(ROUNDS):
            who = self.draw_clients(r)
            size = np.array(NARROW)[tier[who]]
            # what goes down is as narrow as what comes up
            lengths.append(self.tau(who, 2.0 * size - LEFT[0], cost[tier[who]]).max())
        return float(np.mean(lengths))

    def rbcs_f(
        self, reachable: float = 1.0, exchange_only: bool = False, stray: bool = False, penalty: float = 3.0
    ) -> float:
        """`reachable`: share of the clients, drawn anew every round, that can be asked at all.

        `exchange_only`: the choice is by the time of the exchange; `stray`: the last client chosen is one of the
        slowest class, whose clients come first in the public code: there it is number 54 + round.
        """
        everybody = np.arange(CLIENTS)
        cost = np.full(CLIENTS, 3 * self.times.workload.profile[0])
        times = self.tau(everybody, np.full(CLIENTS, LEFT[0]), cost)
        known = self.tau(everybody, np.full(CLIENTS, LEFT[0]), 0 * cost) if exchange_only else times
        owed, lengths = np.zeros(CLIENTS), list[float]()
        slowest = everybody[self.times.capability == self.times.capability.min()]
        grid = np.ceil(known * 50) / 50  # equal to two digits: 3,550 limits would say no more
        for r in range(ROUNDS):
            able = everybody[self.streams.numpy("reachable", r).random(CLIENTS) < reachable]
            chosen = able[choose(grid[able], owed[able], CHOSEN, penalty)]
            if stray:
                chosen[-1] = slowest[STRAY + r]
            lengths.append(float(times[chosen].max()))
            asked = np.isin(everybody, chosen)
            owed = np.maximum(0, owed + CHOSEN / CLIENTS - asked)
        return float(np.mean(lengths))


def compute_charge(work: Workload, frozen: int, epochs: int, charge: str) -> float:
    """Seconds an example, as fl/methods/freezefl.py charges them."""
    if charge == "epochs":
        return epochs * work.frozen(frozen)
    return work.profile[0] + (epochs if charge == "really" else epochs - 1) * work.frozen(frozen)


def mark_deviation(found: float, low: float, high: float) -> str:
    """A length, with a star where it is more than 3 % outside what is printed."""
    return f"{found:.2f}{' ' if 0.97 * low <= found <= 1.03 * high else '*'}"


def main() -> None:
    parser = ArgumentParser(description="FreezeFL's round lengths, from the time model alone")
    parser.add_argument("--charge", choices=("epochs", "probe", "really"), default="epochs")
    charge = parser.parse_args().charge
    both = [TimedFederation(law, charge) for law in ("uniform", "normal")]
    print(f"{'row':38} {'paper':>11}  uniform   normal   (charge: {charge}; * differs by more than 3 %)")

    def row(name: str, low: float, high: float, length: Callable[[TimedFederation], float]) -> None:
        printed = f"{low:g}" if low == high else f"{low:g}-{high:g}"
        ours = [mark_deviation(length(f), low, high) for f in both]
        print(f"{name:38} {printed:>11} {ours[0]:>9}{ours[1]:>9}")

    for epochs, paper in zip((2, 3, 4, 5), (1.22, 1.52, 1.80, 2.10), strict=True):
        row(f"FedAvg, E = {epochs}", paper, paper, lambda f, e=epochs: f.fedavg(e))  # type: ignore[misc]
    freezing = {f: f.freezing() for f in both}
    row("Freezing, beta 4", 1.04, 1.07, lambda f: freezing[f][0])
    cuts = [1 - freezing[f][0] / f.fedavg(3) for f in both]
    print(f"{'the cut against FedAvg':38} {'30 %':>11} {cuts[0]:>8.0%} {cuts[1]:>8.0%}")
    shares = [freezing[f][1] for f in both]
    print(f"{'answers that freeze 3 layers':38} {'':>11} {shares[0]:>8.0%} {shares[1]:>8.0%}")
    row("FjORD", 0.95, 0.95, TimedFederation.fjord)
    row("RBCS-F", 0.892, 0.892, TimedFederation.rbcs_f)
    row("RBCS-F, by the exchange alone", 0.892, 0.892, lambda f: f.rbcs_f(exchange_only=True))
    row("RBCS-F, with a stray client", 0.892, 0.892, lambda f: f.rbcs_f(stray=True))
    row("RBCS-F, both", 0.892, 0.892, lambda f: f.rbcs_f(exchange_only=True, stray=True))
    row("RBCS-F, a fifth can be asked", 0.892, 0.892, lambda f: f.rbcs_f(reachable=0.2))


if __name__ == "__main__":
    main()
