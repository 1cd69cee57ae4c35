"""Speed of the planner and of bounds, beside dp-accounting's own: python -m benchmarks.speed.noise_planner.

A plan is the least noise for a budget, by `fedaudit dp calibrate`; dp-accounting's is `calibrate_dp_mechanism`
over its `PLDAccountant`, as its documentation has it, and once more on the grid of losses that ours uses, coarser
above an epsilon of 1. That accountant refuses fixed-size sampling, so there dp-accounting's search calibrates our
distributions. A bound is what a ledger of releases of different noise costs. Both take turns in one process with
everything imported, and processor seconds count, so that the ratio means something on a shared machine. Ours has
the curve over eight numbers of rounds in its time, which dp-accounting's has not.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from fedaudit.audit.accounting.accountants import pld, wor_pld
from fedaudit.audit.accounting.planner import GRID, SAMPLING, NoiseQuestion, search
from fedaudit.audit.accounting.terms import Term, Terms

PLANS = (
    NoiseQuestion(epsilon=8, rounds=1000, rate=0.01),
    NoiseQuestion(epsilon=1, rounds=1000, rate=0.01),
    NoiseQuestion(epsilon=1, rounds=200, rate=0.1),
    NoiseQuestion(epsilon=8, rounds=200, rate=0.1, per_round=2),
    NoiseQuestion(epsilon=4, rounds=1000, how="fixed", clients=1001, sampled=10),
    NoiseQuestion(epsilon=1, rounds=200, how="fixed", clients=101, sampled=10),
)
LEDGERS = ((8, 125), (40, 5), (100, 1))  # different multipliers, and how often each occurs
DELTA, RATE = 1e-5, 0.05
MOST = 1.5  # times dp-accounting's processor seconds


class Case(NamedTuple):
    what: str
    ours: Callable[[], float]  # all give the multiplier, or the bound
    theirs: Callable[[], float]  # dp-accounting on its default grid of losses
    alike: Callable[[], float]  # and on ours


def cases() -> Iterator[Case]:
    """Plans, then bounds of releases that differ."""
    for q in PLANS:
        several = f", {q.per_round} releases a round" if q.per_round > 1 else ""
        what = f"plan: epsilon {q.epsilon:g}, {q.rounds:,} rounds, rate {q.rate:g}, {q.how}{several}"
        grid = max(pld.FINEST, GRID * q.epsilon)
        yield Case(what, partial(_planned, q), partial(calibrated, q, pld.FINEST), partial(calibrated, q, grid))
    for different, times in LEDGERS:
        counts = {Term("gaussian", 1 + i / different, "poisson", RATE): times for i in range(different)}
        grid = pld.compose_terms(counts, DELTA, pld.distribution).step
        what = f"bound: {different * times:,} releases of {different} multipliers, rate {RATE:g}, poisson"
        yield Case(
            what,
            partial(_bounded, counts),
            partial(accounted, counts, pld.FINEST),
            partial(accounted, counts, grid),
        )


def _planned(q: NoiseQuestion) -> float:
    return search(q)[0]


def _bounded(counts: Terms) -> float:
    return pld.bound(counts, DELTA).epsilon


def calibrated(q: NoiseQuestion, grid: float) -> float:
    """The multiplier for this budget, by dp-accounting's own search."""
    import dp_accounting as library
    from dp_accounting.mechanism_calibration import calibrate_dp_mechanism

    def event(z: float) -> Any:
        noise = library.GaussianDpEvent(z / math.sqrt(q.per_round))  # what one draw decides is one release
        return library.SelfComposedDpEvent(library.PoissonSampledDpEvent(q.rate, noise), q.rounds)

    if q.how == "poisson":
        neighbours = library.NeighboringRelation.ADD_OR_REMOVE_ONE
        fresh: Callable[[], Any] = partial(library.pld.PLDAccountant, neighbours, grid)
        return float(calibrate_dp_mechanism(fresh, event, q.epsilon, q.delta))
    return float(calibrate_dp_mechanism(partial(Sized, q, grid), lambda z: z, q.epsilon, q.delta))


class Sized:
    """As much of an accountant as the search needs: the cost of a multiplier by our own distributions."""

    def __init__(self, q: NoiseQuestion, grid: float) -> None:
        from dp_accounting import NoOpDpEvent

        self.q, self.grid, self.z, self.ledger = q, grid, 0.0, NoOpDpEvent()

    def compose(self, z: float) -> "Sized":
        self.z = z
        return self

    def get_epsilon(self, delta: float) -> float:
        if not self.z:
            return math.inf
        term = Term("gaussian", self.z, SAMPLING[self.q.how], self.q.credited)
        return pld.on_grid({term: self.q.rounds}, delta, self.grid, wor_pld.distribution)


def accounted(counts: Terms, grid: float) -> float:
    """The cost of these releases, by dp-accounting's own accountant."""
    import dp_accounting as library

    found = library.pld.PLDAccountant(library.NeighboringRelation.ADD_OR_REMOVE_ONE, grid)
    for term, n in counts.items():
        sampled = library.PoissonSampledDpEvent(term.rate, library.GaussianDpEvent(term.z))
        found.compose(sampled, n)
    return float(found.get_epsilon(DELTA))


def seconds(contenders: tuple[Callable[[], float], ...], turns: int) -> list[tuple[float, float]]:
    """What each gives, and the median of its processor seconds over turns that alternate."""
    taken: list[list[float]] = [[] for _ in contenders]
    given = [0.0 for _ in contenders]
    for _ in range(turns):
        for i, run in enumerate(contenders):
            began = time.process_time()
            given[i] = run()
            taken[i].append(time.process_time() - began)
    return [(value, median(times)) for value, times in zip(given, taken, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="of each, of which the median counts")
    given = parser.parse_args()
    import dp_accounting.pld  # noqa: F401

    calibrated(NoiseQuestion(epsilon=4, rounds=2, rate=0.5), 0.01)  # imports and tables
    print(f"{'':72}{'ours':>8}{'theirs':>9}{'ratio':>7}{'same grid':>11}{'ratio':>7}   what came out")
    worst = 0.0
    for case in cases():
        (a, ours), (b, theirs), (_, alike) = seconds((case.ours, case.theirs, case.alike), given.turns)
        worst = max(worst, ours / theirs, ours / alike)
        times = f"{ours:8.2f}{theirs:9.2f}{ours / theirs:7.2f}{alike:11.2f}{ours / alike:7.2f}"
        print(f"{case.what:72}{times}   {a:.5g}, {b:.5g}", flush=True)
    print(f"processor seconds; ours takes {worst:.2f} times dp-accounting's at worst, {MOST:g} allowed")
    raise SystemExit(worst > MOST)


if __name__ == "__main__":
    main()
