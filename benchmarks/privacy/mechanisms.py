"""Random mechanisms against certified lower values: no epsilon of ours may be below what an attack achieves.

python -m benchmarks.privacy.mechanisms --count 300 --seed 1

Each mechanism is a ledger of one client, as the wire would write it: Gaussian, Laplace, discrete Laplace or
randomised noise, drawn by a coin or in a fixed number or not at all, in several releases a round, in rounds that
share their draw, with noise that changes. Lower values do not come from accountants: what one draw decides is cut
into finitely many cells by its likelihood ratio, which is post-processing; losses are rounded down to a grid,
which can only lower a hockey-stick divergence; and the rounds are convolved. Both directions of a pair count. For
a fixed number the pair is that of a coin at the same rate (all others send -C, the target +C), which it reaches.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.accounting.accountant import Bound
from fedaudit.audit.accounting.accountants._engines import tightest
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.rdp import bound as renyi
from fedaudit.audit.accounting.budget import towards
from fedaudit.audit.accounting.child import call
from fedaudit.audit.accounting.terms import terms
from fedaudit.fl.ledger import Mechanism, Release

Array = NDArray[np.float64]
CELLS, SLACK = 2001, 1e-3  # of one draw's outcomes; relative error of the accountants' grids
STEP = 4e-3  # grid of the lower value's losses
SECONDS = 600.0


class Made(NamedTuple):
    what: str
    releases: list[Release]
    delta: float


class Result(NamedTuple):
    made: Made
    upper: float
    lower: float
    other: float  # by Renyi divergences (Opacus), or exact; infinite where neither applies


def random_mechanisms(count: int, seed: int) -> Iterator[Made]:
    """That many ledgers of one client; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kinds = ("gaussian", "several", "persistent", "changing", "laplace", "discrete", "answers", "fixed", "plain")
    for number in range(count):
        what = kinds[number % len(kinds)]
        rounds, rate = int(rng.integers(3, 26)), float(rng.choice([0.05, 0.1, 0.3, 0.6]))
        z, delta = float(np.exp(rng.uniform(-0.4, 1.2))), float(rng.choice([1e-3, 1e-5, 1e-6]))
        period, several = int(rng.integers(2, 8)), int(rng.integers(2, 4))
        mechanism: Mechanism = {"laplace": "laplace", "discrete": "discrete_laplace"}.get(what, "gaussian")  # type: ignore[assignment]
        mechanism = "randomized_response" if what == "answers" else mechanism
        found = []
        for t in range(rounds):
            for i in range(several if what == "several" else 1):
                noise = z * (1 + 0.5 * (t % 3)) if what == "changing" else z * (1 + 0.7 * i)
                first = t - t % period
                found.append(
                    Release(
                        round=t,
                        kind="global_model",
                        sender="client/*",
                        observers=("client", "public"),
                        mechanism=mechanism,
                        noise_std=noise * (1.0 if mechanism == "gaussian" else 2.0),
                        sensitivity=1.0,
                        adjacency="replace_one" if what == "fixed" else "add_or_remove_one",
                        sampling={"fixed": "fixed_without_replacement", "plain": "none"}.get(what, "poisson"),  # type: ignore[arg-type]
                        sample_rate=1.0 if what == "plain" else rate,
                        coin=f"rounds {first} to {first + period - 1}" if what == "persistent" else "",
                        participation_seen_by=("server",),
                    )
                )
        yield Made(f"{what}, {rounds} rounds, z {z:.3g}, rate {rate:g}, delta {delta:g}", found, delta)


def lower_value(releases: Sequence[Release], delta: float) -> float:
    """An epsilon that no sound bound can be below."""
    draws: dict[object, list[Release]] = {}
    for r in releases:
        draws.setdefault(r.coin or r.round, []).append(r)
    pairs: dict[tuple[Any, ...], tuple[tuple[Array, Array], int]] = {}
    for shared in draws.values():
        noise = tuple(sorted(r.noise_std / (r.sensitivity or 1.0) for r in shared))
        key = (shared[0].mechanism, noise, shared[0].sample_rate)
        found = pairs.get(key)
        pairs[key] = (cells(*key), 1) if found is None else (found[0], found[1] + 1)
    ways = ([(pair, n) for pair, n in pairs.values()], [((q, p), n) for (p, q), n in pairs.values()])
    return max(_composed(way, delta) for way in ways)


def cells(mechanism: str, noise: Sequence[float], rate: float) -> tuple[Array, Array]:
    """Probabilities of the outcomes of one draw, with the client and without it."""
    from scipy.special import ndtr

    if mechanism == "gaussian":  # the best weighted sum of what the draw decided
        z = 1 / math.sqrt(sum(1 / n**2 for n in noise))
        edges = np.linspace(-9 * z, 1 + 9 * z, CELLS)
        inside, outside = (np.diff(ndtr((edges - shift) / z), prepend=0.0) for shift in (1.0, 0.0))
    elif mechanism == "laplace":
        edges, b = np.linspace(-0.2, 1.2, 401), noise[0]
        inside, outside = (np.diff(_laplace(edges - shift, b), prepend=0.0) for shift in (1.0, 0.0))
    elif mechanism == "discrete_laplace":
        x, a = np.arange(-400, 401), math.exp(-1 / noise[0])
        inside, outside = ((1 - a) / (1 + a) * a ** np.abs(x - shift) for shift in (1, 0))
    else:
        p = 1 / (1 + math.exp(-1 / noise[0]))
        inside, outside = np.array([p, 1 - p]), np.array([1 - p, p])
    inside, outside = (np.append(v, max(0.0, 1 - float(v.sum()))) for v in (inside, outside))
    return rate * inside + (1 - rate) * outside, outside


def _laplace(x: Array, b: float) -> Array:
    return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / b), 1 - 0.5 * np.exp(-np.maximum(x, 0) / b))


def _composed(pairs: Sequence[tuple[tuple[Array, Array], int]], delta: float) -> float:
    losses = []
    for (p, q), n in pairs:
        kept = (p > 0) & (q > 0)
        grid = np.floor(np.log(p[kept] / q[kept]) / STEP).astype(int)
        losses.append((grid, p[kept], n))
    least = sum(n * int(g.min()) for g, _, n in losses)
    most = sum(n * int(g.max()) for g, _, n in losses)
    size = 1 << min(22, max(1, math.ceil(math.log2(most - least + 1))))
    total = np.ones(size // 2 + 1, dtype=complex)
    for grid, p, n in losses:  # where the range is cut, what wraps around has next to no weight
        total *= np.fft.rfft(np.bincount((grid - int(grid.min())) % size, p, minlength=size)) ** n
    mass = np.maximum(np.fft.irfft(total, size) - 1e-14, 0.0)
    loss = (np.arange(size) + least) * STEP

    def left(epsilon: float) -> float:
        above = loss > epsilon
        return float((mass[above] * -np.expm1(epsilon - loss[above])).sum())

    low, high = 0.0, max(0.0, float(loss[-1]))
    if left(0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > delta else (low, middle)
    return low


def _uppers(made: Sequence[Made]) -> list[tuple[float, float]]:
    """Our bounds towards the public and those of other programs; runs in one child."""
    found = []
    for m in made:
        counts = terms(towards("public", m.releases, "client")[1]["client/*"])
        upper: Bound = tightest(counts, m.delta, PLD.Config())
        other = math.inf
        if all(t.mechanism == "gaussian" and t.sampling == "none" for t in counts):
            other = gaussian(math.sqrt(sum(n / t.z**2 for t, n in counts.items())), m.delta)
        elif all(t.mechanism == "gaussian" and t.sampling == "poisson" for t in counts):
            other = renyi(counts, m.delta).epsilon
        found.append((upper.epsilon, other))
    return found


def compared(count: int, seed: int) -> list[Result]:
    """Every mechanism with our bound, its lower value and another program's."""
    made = list(random_mechanisms(count, seed))
    uppers = call(_uppers, SECONDS, 8.0, made)
    lowers = [lower_value(m.releases, m.delta) for m in made]
    return [Result(m, upper, low, other) for m, (upper, other), low in zip(made, uppers, lowers, strict=True)]


def too_low(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.upper < r.lower * (1 - SLACK)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    results = compared(given.count, given.seed)
    for what in dict.fromkeys(r.made.what.partition(",")[0] for r in results):
        same = [r for r in results if r.made.what.startswith(what) and r.lower > 0]
        ratios, others = [r.upper / r.lower for r in same], [r.other / r.upper for r in same]
        print(f"{what:12} {len(same):4}  ours / lower {median(ratios):.4f}  others / ours {median(others):.4f}")
    wrong = too_low(results)
    for r in wrong:
        print(f"TOO LOW: {r.made.what}: {r.upper:.6g}, at least {r.lower:.6g}")
    print(f"{len(results)} mechanisms, {len(wrong)} below their lower value")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
