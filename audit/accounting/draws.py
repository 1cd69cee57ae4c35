"""Draws: whether clients come to take part as their availability says, tried 10^4 times.

An availability states a law (fl/data/participation.py), and a bound is amplified by it. We have its code: it is
drawn anew over many rounds, the run's own first, and the law is held against what comes: the rate of each client
and of all, and whether draws depend on each other over rounds or over clients. Each test has a p-value; a claim
is contradicted where one falls below ERROR over the number of tests, so that a true claim is called false once in
a million runs.
"""

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.fl.data.participation import Availability, Drawn
from fedaudit.fl.runtime.streams import Streams

DRAWS, ROUNDS = 10_000, 500  # of clients, over at least so many rounds
ERROR = 1e-6
APART = (1, 2, 5)  # periods between draws that are compared


def contradictions(available: Availability, clients: int, streams: Streams) -> list[str]:
    """How draws contradict what is claimed of them, as phrases; none where nothing is claimed."""
    laws = [available.sampling(k, clients) for k in range(clients)]
    if any(law.sampling == "unknown" for law in laws):
        return []
    if available.sampling(None, clients).rate < max(law.rate for law in laws):
        return ["the likeliest client is drawn more often than is said of it"]
    table = _table(available, max(ROUNDS, -(-DRAWS // clients)), clients, streams)
    if laws[0].sampling == "none":
        return [] if table.all() else ["somebody stays away"]
    period = laws[0].period
    whole = table[: len(table) - len(table) % period].reshape(-1, period, clients)
    found = [] if (whole == whole[:, :1]).all() else ["a draw changes within its period"]
    free, rates = whole[:, 0], np.array([law.rate for law in laws])
    if laws[0].sampling == "fixed_without_replacement":
        totals = free.sum(1)
        found += [] if (totals == totals[0]).all() and totals[0] == round(rates.sum()) else ["another number"]
    values = _values(free, laws)
    return found + [name for name, p in values.items() if p < ERROR / len(values)]


def _table(available: Availability, rounds: int, clients: int, streams: Streams) -> NDArray[np.bool_]:
    """[rounds, clients] who answered."""
    table = np.zeros((rounds, clients), dtype=bool)
    for t in range(rounds):
        table[t, list(available.draw(t, range(clients), streams).answering)] = True
    return table


def _values(free: NDArray[np.bool_], laws: list[Drawn]) -> dict[str, float]:
    """The p-value of each test of independent draws [periods, clients]."""
    many, clients = free.shape
    rates = np.array([law.rate for law in laws])
    hits = free.sum(0)
    tails = 2 * np.minimum(scipy.stats.binom.cdf(hits, many, rates), scipy.stats.binom.sf(hits - 1, many, rates))
    values = {f"client {k} comes at a rate of {hits[k] / many:.3g}": float(tails[k]) for k in range(clients)}
    spread = np.sqrt(rates * (1 - rates))
    centred = (free - rates) / np.where(spread > 0, spread, 1.0)
    centred = centred[:, spread > 0]  # means of products of independent numbers of variance 1
    if not centred.size:
        return values
    values[f"all together come at a rate of {free.mean():.3g}"] = _normal(centred.sum(), centred.size)
    for lag in APART:
        products = centred[lag:] * centred[:-lag]
        values[f"draws {lag} apart depend on each other"] = _normal(products.sum(), products.size)
    if laws[0].sampling != "fixed_without_replacement" and centred.shape[1] > 1:
        others = centred.sum(1) ** 2 - (centred**2).sum(1)  # products of every two clients
        pairs = many * centred.shape[1] * (centred.shape[1] - 1) / 2
        values["two clients depend on each other"] = _normal(others.sum() / 2, pairs)
    return values


def _normal(total: float, count: float) -> float:
    return float(2 * scipy.stats.norm.sf(abs(total) / np.sqrt(count))) if count else 1.0
