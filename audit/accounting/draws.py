"""Draws: whether clients come to take part as their availability says, tried 10^4 times.

An availability states a law (fl/data/participation.py), and a bound is amplified by it. We have its code: it is
drawn anew over many rounds, the run's own first, and the law is held against what comes:

    rates      of each client, and of all together
    over time  each client with itself, all clients with themselves, and the number that come, at every lag
    together   every two clients, in the same draw and at every lag; all pairs at once

A sum S = sum_t x_t y_{t+lag} of centred draws grows by martingale differences under the law, whose moment
generating function given the past is known, so that P[S >= s] <= exp(K(l) - l s) for every l chosen beforehand
(Chernoff). A claim is contradicted where such a bound falls below ERROR over the number of kinds of tests, and of
all tests and all l of its kind: a true claim is called false in at most ERROR of runs, without any approximation.
Cheap kinds come first, and the first contradiction ends it. Lags are those that the run has. With more than MET
clients, pairs are tried among as many, and with more than PAIRED at other lags than 0 among as many of these,
which a stream of the run's draws: the work grows as the clients do.

Draws that pass may still depend on each other, three clients at a time or in a later round: only no dependence of
these sorts was seen. A law that is not of this project is therefore declared (audit/accounting/verify.py).
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.fl.data.participation import Availability
from fedaudit.fl.runtime.distributions import binom_cdf, binom_sf, hypergeom_logpmf
from fedaudit.fl.runtime.streams import Streams

Array = NDArray[np.float64]

DRAWS, ROUNDS, MOST = 10_000, 500, 20_000  # of clients; over at least, and at most, so many rounds
BEYOND = 200  # periods after the run's own, so that a draw that comes back at its end is seen as often
ERROR = 1e-6  # chance that a true claim is contradicted
MET = 2_000  # clients that are compared two by two in the same draw
PAIRED = 96  # clients that are compared two by two at every lag
FEWEST = 20  # products of a sum; of fewer nothing follows
KINDS = 6  # of tests of one table, at most: each may be wrong as often
EVIDENCE = 45.0  # about log(number of tests / ERROR), which sets the l that are tried
STEEPNESS = (-1.0, -0.5, 0.5, 1.0)  # of l, times what is best for a normal sum


class Test(NamedTuple):
    """The least of some bounds on a probability under the law, and of how many it is the least."""

    what: str
    log_p: float
    tests: int


def contradictions(available: Availability, clients: int, streams: Streams, rounds: int = 0) -> list[str]:
    """How draws contradict what is claimed of them, as phrases; none where nothing is claimed.

    `rounds` are those of the run: draws are compared at every lag that they have.
    """
    laws = [available.sampling(k, clients) for k in range(clients)]
    if any(law.sampling == "unknown" for law in laws):
        return []
    if available.sampling(None, clients).rate < max(law.rate for law in laws):
        return ["the likeliest client is drawn more often than is said of it"]
    period = laws[0].period
    wanted = max(ROUNDS, -(-DRAWS // clients), rounds + BEYOND * period)
    table = _draw_table(available, min(wanted, max(MOST, rounds)), clients, streams)
    if laws[0].sampling == "none":
        return [] if table.all() else ["somebody stays away"]
    whole = table[: len(table) - len(table) % period].reshape(-1, period, clients)
    found = [] if (whole == whole[:, :1]).all() else ["a draw changes within its period"]
    free, rates = whole[:, 0], np.array([law.rate for law in laws])
    sized = laws[0].sampling == "fixed_without_replacement"
    if sized:
        totals = free.sum(1)
        found += [] if (totals == totals[0]).all() and totals[0] == round(rates.sum()) else ["another number"]
    own = free[: -(-rounds // period)]  # what happens in these only would be diluted in all
    longest = len(own) or ROUNDS  # draws further apart than the run's do not meet in it
    parts = [part for part in (free, own) if len(part) > FEWEST]
    each = math.log(ERROR / len(parts) / KINDS) if parts else 0.0
    tests = (test for part in parts for test in _test(part, rates, sized, longest, streams))
    against = (t.what for t in tests if t.tests and t.log_p < each - math.log(t.tests))
    return found or list(islice(against, 1))


def _draw_table(available: Availability, rounds: int, clients: int, streams: Streams) -> NDArray[np.bool_]:
    """[rounds, clients] who answered."""
    table = np.zeros((rounds, clients), dtype=bool)
    for t in range(rounds):
        table[t, list(available.draw(t, range(clients), streams).answering)] = True
    return table


def _test(free: NDArray[np.bool_], rates: Array, sized: bool, longest: int, streams: Streams) -> Iterator[Test]:
    """Tests of independent draws [periods, clients] at lags up to `longest`; `sized`: as many come in each."""
    hits, many = free.sum(0), len(free)
    tails = np.minimum(binom_cdf(hits, many, rates), binom_sf(hits - 1, many, rates))
    worst = int(tails.argmin())
    what = f"client {worst} comes at a rate of {hits[worst] / many:.3g}"
    yield Test(what, float(np.log(2 * tails[worst] + 1e-300)), len(rates))
    varying = (rates > 0) & (rates < 1)
    coins = Coins(free[:, varying], rates[varying], longest)
    if not coins.clients:
        return
    if sized:
        yield _test_number(coins)
        yield _test_pairs_of_a_number(coins, streams)
    else:
        yield _test_all(coins)
        yield _test_sum_of_pairs(coins)
        yield _test_own_lags(coins)
        yield _test_crowd(coins)
    yield from _test_pairs(coins, sized, streams)


class Coins:
    """Draws [n, K] of clients that neither always nor never come, centred and of variance 1."""

    def __init__(self, free: NDArray[np.bool_], rates: Array, longest: int) -> None:
        self.free, self.rates = free, rates
        self.spread = np.sqrt(rates * (1 - rates))
        self.high, self.low = (1 - rates) / self.spread, -rates / self.spread
        self.values: Array = (free - rates) / self.spread if len(rates) else np.zeros(free.shape)
        self.n, self.clients = free.shape
        self.kinds, self.kind = np.unique(rates, return_inverse=True)
        self.lags = np.arange(1, min(longest, max(0, self.n - FEWEST)) + 1)

    def log_mgf(self, kind: int, x: Array) -> Array:
        """log E exp(x c) of a centred coin of one of the rates."""
        q = self.kinds[kind]
        spread = math.sqrt(q * (1 - q))
        return np.asarray(np.logaddexp(math.log1p(-q), math.log(q) + x / spread) - x * q / spread)


def _minimise_bounds(sums: Array, bounds: list[tuple[Array, Array]]) -> Array:
    """The least log probability over all l, for sums and pairs (l, K(l))."""
    return np.asarray(np.min([k - slope * sums for slope, k in bounds], axis=0))


def _list_slopes(variance: Array) -> Iterator[Array]:
    """Every l that is tried for sums of that variance."""
    for steep in STEEPNESS:
        yield steep * np.sqrt(2 * EVIDENCE / variance)


def _find_least(what: str, log_p: Array, lags: NDArray[np.int64] | None = None) -> Test:
    """The test of the most surprising sum; its lag is put into the text."""
    if not log_p.size:
        return Test(what, 0.0, 0)
    worst = int(log_p.argmin())
    name = what if lags is None else what.format(lag=int(lags[worst]))
    return Test(name, float(log_p[worst]), log_p.size * len(STEEPNESS))


def _sum_lags(a: Array, b: Array, lags: int) -> Array:
    """sum_t a[t] b[t + lag] for lag 0 to lags, along the first axis."""
    size = 1 << (2 * len(b) - 1).bit_length()
    product = np.fft.rfft(a, size, axis=0).conj() * np.fft.rfft(b, size, axis=0)
    return np.asarray(np.fft.irfft(product, size, axis=0)[: lags + 1])


def _count_hits_before(coins: Coins) -> Array:
    """[lags + 1, K] how often each client came in the first n - lag draws."""
    total = np.cumsum(coins.free, axis=0)
    return np.asarray(total[coins.n - 1 - np.arange(len(coins.lags) + 1)], dtype=float)


def _test_all(coins: Coins) -> Test:
    total, count = np.array([coins.values.sum()]), np.bincount(coins.kind)
    bounds = [
        (slope, coins.n * sum(count[u] * coins.log_mgf(u, slope) for u in range(len(count))))
        for slope in _list_slopes(np.array([float(coins.values.size)]))
    ]
    return _find_least(f"all together come at a rate of {coins.free.mean():.3g}", _minimise_bounds(total, bounds))


def _test_own_lags(coins: Coins) -> Test:
    """All clients, each with its own earlier draws."""
    lags, n = coins.lags, coins.n - coins.lags
    spectra = np.abs(np.fft.rfft(coins.values, 1 << (2 * coins.n - 1).bit_length(), axis=0)) ** 2
    sums = np.fft.irfft(spectra.sum(1), axis=0)[lags]
    hits = _count_hits_before(coins)[lags]
    bounds = []
    for slope in _list_slopes(n * float(coins.clients)):
        total = np.zeros(len(lags))
        for u in range(len(coins.kinds)):
            mine = coins.kind == u
            came, first = hits[:, mine].sum(1), int(mine.argmax())
            total += came * coins.log_mgf(u, slope * coins.high[first])
            total += (n * mine.sum() - came) * coins.log_mgf(u, slope * coins.low[first])
        bounds.append((slope, total))
    return _find_least("draws {lag} apart depend on each other", _minimise_bounds(sums, bounds), lags)


def _test_crowd(coins: Coins) -> Test:
    """How many come, with how many came earlier: clients with other clients as well."""
    crowd, lags, count = coins.values.sum(1), coins.lags, np.bincount(coins.kind)
    sums = _sum_lags(crowd, crowd, len(lags))[lags]
    bounds = []
    for slope in _list_slopes((coins.n - lags) * float(coins.clients) ** 2):
        total = np.zeros(len(lags))
        for u, number in enumerate(count):
            parts = coins.log_mgf(u, slope[:, None] * crowd[None])  # [lags, n]
            total += number * np.cumsum(parts, axis=1)[np.arange(len(lags)), coins.n - 1 - lags]
        bounds.append((slope, total))
    return _find_least(
        "how many come depends on who came {lag} draws before", _minimise_bounds(sums, bounds), lags
    )


def _test_sum_of_pairs(coins: Coins) -> Test:
    """Every two clients of one draw, all pairs together."""
    before = np.cumsum(coins.values, axis=1) - coins.values
    total = np.array([(before * coins.values).sum()])
    bounds = []
    for slope in _list_slopes(np.array([max(1.0, coins.n * coins.clients * (coins.clients - 1) / 2)])):
        parts = (coins.log_mgf(u, slope * before[:, coins.kind == u]).sum() for u in range(len(coins.kinds)))
        bounds.append((slope, np.array([sum(parts)])))
    return _find_least("two clients depend on each other", _minimise_bounds(total, bounds))


def _test_number(coins: Coins) -> Test:
    """Of a fixed number: how many of them were drawn earlier too, which is hypergeometric."""
    k, q, lags = coins.clients, float(coins.rates[0]), coins.lags
    drawn = round(q * k)
    sums = _sum_lags(coins.values, coins.values, len(lags)).sum(1)[lags]
    often = np.arange(drawn + 1)
    log_pmf = hypergeom_logpmf(often, k, drawn, drawn)
    bounds = []
    for slope in _list_slopes((coins.n - lags) * float(k)):
        one = slope[:, None] / (q * (1 - q)) * (often - q * drawn)
        bounds.append((slope, (coins.n - lags) * scipy.special.logsumexp(one + log_pmf, axis=1)))
    return _find_least("draws {lag} apart depend on each other", _minimise_bounds(sums, bounds), lags)


def _choose_clients(coins: Coins, most: int, streams: Streams) -> NDArray[np.int64]:
    """So many of the clients at most; fewer are some of more."""
    return np.sort(streams.numpy("pairs of draws").permutation(coins.clients)[:most])


def _test_pairs_of_a_number(coins: Coins, streams: Streams) -> Test:
    """Of a fixed number: how often every two clients come in the same draw."""
    k, drawn = coins.clients, coins.free.sum(1).mean()
    met = coins.free[:, _choose_clients(coins, MET, streams)].astype(float)
    both = (met.T @ met)[np.triu_indices(met.shape[1], 1)]
    if not both.size:
        return Test("", 0.0, 0)
    rate = drawn * (drawn - 1) / (k * (k - 1))
    tails = np.minimum(binom_cdf(both, coins.n, rate), binom_sf(both - 1, coins.n, rate))
    return Test("two clients depend on each other", float(np.log(2 * tails.min() + 1e-300)), both.size)


def _test_pairs(coins: Coins, sized: bool, streams: Streams) -> Iterator[Test]:
    """Each client with itself and with every other one, at every lag; the most surprising of all."""
    some, met = (_choose_clients(coins, most, streams) for most in (PAIRED, MET))
    hits, lags = _count_hits_before(coins), np.arange(len(coins.lags) + 1)
    worst, tests = Test("", 0.0, 0), 0
    for place, i in enumerate(met.tolist()):
        if i in some:
            sums = _sum_lags(coins.values[:, [i]], coins.values[:, some], len(coins.lags))
            log_p = _bound_pairs(coins, i, some, hits[:, i], lags, sums)
            log_p[0, some <= i] = 0.0  # the client itself, and pairs that were met
            log_p[0] *= not sized  # dependent there, as they should be
            rest = np.setdiff1d(met[place + 1 :], some)
        else:
            log_p, rest = np.zeros((0, 0)), met[place + 1 :]
        tests += log_p.size * len(STEEPNESS)
        if log_p.size and log_p.min() < worst.log_p:
            lag, j = divmod(int(log_p.argmin()), len(some))
            worst = Test(_describe_pair(i, int(some[j]), lag), float(log_p.min()), 0)
        if len(rest) and not sized:
            sums = coins.values[:, i][None] @ coins.values[:, rest]
            log_p = _bound_pairs(coins, i, rest, hits[:1, i], lags[:1], sums)
            tests += log_p.size * len(STEEPNESS)
            if log_p.min() < worst.log_p:
                worst = Test(_describe_pair(i, int(rest[log_p.argmin()]), 0), float(log_p.min()), 0)
    yield worst._replace(tests=tests)


def _bound_pairs(
    coins: Coins, i: int, others: NDArray[np.int64], hits: Array, lags: NDArray[np.int64], sums: Array
) -> Array:
    """[lags, others] log probabilities of sums of client i's draws with those of others `lags` later."""
    n, kinds = coins.n - lags, coins.kind[others]
    bounds = []
    for slope in _list_slopes(n.astype(float)):
        each = np.zeros((len(lags), len(coins.kinds)))
        for u in np.unique(kinds):
            each[:, u] = hits * coins.log_mgf(u, slope * coins.high[i])
            each[:, u] += (n - hits) * coins.log_mgf(u, slope * coins.low[i])
        bounds.append((slope[:, None], each[:, kinds]))
    return _minimise_bounds(sums, bounds)


def _describe_pair(i: int, j: int, lag: int) -> str:
    if i == j:
        return f"draws of client {i} that are {lag} apart depend on each other"
    when = f" {lag} draws before" if lag else " in the same draw"
    return f"whether client {j} comes depends on client {i}{when}"
