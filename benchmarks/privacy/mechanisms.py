"""Random mechanisms against certified lower values: no epsilon of ours may be below what an attack achieves.

python -m benchmarks.privacy.mechanisms --count 300 --seed 1

Some are a ledger of one client, as the wire would write it: Gaussian, Laplace, discrete Laplace or randomised
noise, drawn by a coin or in a fixed number or not at all, in several releases a round, in rounds that share
their draw, with noise that changes; or that of a record of several clients, or of several copies. The others
are small federations that are played (benchmarks/privacy/systems.py): robust rules, a server momentum on noised
uploads and on noised means, noise made together and colluders, shares of it in a weighted sum, a server with a
clock, records of several clients in uploads, in sums and in noised means.

Lower values do not come from accountants. Of a ledger, what one draw decides is cut into finitely many cells by
its likelihood ratio, which is post-processing; losses are rounded down to a grid, which can only lower a
hockey-stick divergence; and the rounds are convolved. Both directions of a pair count. For a fixed number the
pair is that of a coin at the same rate (all others send -C, the target +C), which it reaches. Of a federation,
two worlds are told apart in what is read of them. All lower values are certified but those of robust rules, which
are statistical: five errors below an estimate.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.privacy.systems import Distinction, System, distinguish
from fedaudit.audit.accounting.accountant import Bound
from fedaudit.audit.accounting.accountants.auto import tightest
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.rdp import bound as renyi
from fedaudit.audit.accounting.accountants.rdp import explain_refusal
from fedaudit.audit.accounting.budget import towards
from fedaudit.audit.accounting.child import call
from fedaudit.audit.accounting.terms import terms
from fedaudit.audit.accounting.units import Group
from fedaudit.fl.ledger import EACH, EVERYONE, Mechanism, Release, Unit
from fedaudit.fl.runtime.errors import UserError

Array = NDArray[np.float64]
CELLS, SLACK = 2001, 1e-3  # of one draw's outcomes; relative error of the accountants' grids
STEP = 4e-3  # grid of the lower value's losses
SECONDS = 3600.0
RULES: tuple[tuple[str, dict[str, object]], ...] = (("mean", {}), ("median", {}), ("trimmed_mean", {"f": 1}))


class Made(NamedTuple):
    what: str
    releases: list[Release]
    delta: float
    unit: Unit = "client"
    observer: str = "public"
    overlaps: frozenset[Group] = frozenset()  # holders of records
    copies: int = 1  # of a record at its holder
    played: Distinction | None = None  # two worlds that were told apart


class Result(NamedTuple):
    made: Made
    upper: float
    lower: float
    other: float  # by Renyi divergences (Opacus), or exact; infinite where neither applies

    @property
    def is_certified(self) -> bool:
        """Whether the lower value was computed, and not estimated."""
        return self.made.played is None or self.made.played.is_certified


LEDGERS = (
    "gaussian",
    "several",
    "persistent",
    "changing",
    "laplace",
    "discrete",
    "answers",
    "fixed",
    "plain",
    "holders",
    "copies",
)
KINDS = (
    *LEDGERS,
    "rule",
    "momentum",
    "momentum on a mean",
    "colluders",
    "shared records",
    "records in a sum",
    "records in a mean",
    "weights",
    "clock",
)


def random_mechanisms(count: int, seed: int) -> Iterator[Made]:
    """That many ledgers of one client or record; the same for the same seed."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        what = KINDS[number % len(KINDS)]
        yield _write_ledger(what, rng) if what in LEDGERS else _play_system(what, rng)


def _write_ledger(what: str, rng: np.random.Generator) -> Made:
    rounds, rate = int(rng.integers(3, 26)), float(rng.choice([0.05, 0.1, 0.3, 0.6]))
    z, delta = float(np.exp(rng.uniform(-0.4, 1.2))), float(rng.choice([1e-3, 1e-5, 1e-6]))
    period, several = int(rng.integers(2, 8)), int(rng.integers(2, 4))
    text = f"{what}, {rounds} rounds, z {z:.3g}, rate {rate:g}, delta {delta:g}"
    if what in ("holders", "copies"):
        return _write_records(what, rounds, rate, z, delta, several, text)
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
    return Made(text, found, delta)


def _write_records(what: str, steps: int, rate: float, z: float, delta: float, several: int, text: str) -> Made:
    """DP-SGD at clients of which `several` hold one record, or one client holds it as often."""
    found = [
        Release(
            round=0,
            kind="local_model",
            sender=f"client/{k}",
            observers=EVERYONE,
            mechanism="gaussian",
            noise_std=z,
            sensitivity=1.0,
            unit="record",
            sampling="poisson",
            sample_rate=rate,
            coin=EACH,
            participation_seen_by=(),
            count=steps,
        )
        for k in range(several if what == "holders" else 1)
    ]
    if what == "holders":
        return Made(text, found, delta, "record", overlaps=frozenset({frozenset((k, 1) for k in range(several))}))
    return Made(text, found, delta, "record", overlaps=frozenset({frozenset({(0, several)})}), copies=several)


def _play_system(what: str, rng: np.random.Generator) -> Made:
    """A federation of a few clients, its ledger as the wire wrote it, and two worlds told apart."""
    z, delta = float(np.exp(rng.uniform(0, 1.5))), float(rng.choice([1e-3, 1e-5, 1e-6]))
    clients, rounds, seed = int(rng.integers(3, 8)), int(rng.integers(1, 6)), int(rng.integers(1, 10**6))
    holders = int(rng.integers(2, clients)) if "records" in what else 1
    rule = RULES[int(rng.integers(len(RULES)))]
    colluders = int(rng.integers(1, clients - 1))
    gaussian: dict[str, object] = {"clip_norm": 1.0, "noise_multiplier": z}
    together: dict[str, object] = {"contributors": clients}
    size: dict[str, Any] = {
        "clients": clients,
        "rounds": rounds,
        "holders": holders,
        "opposite": "records" in what,
    }
    summed, hidden = "sums", ("secure_aggregation", dict[str, object]())
    momentum = float(rng.choice([0.5, 0.9, 0.99])) if "momentum" in what else 0.0
    if what in ("rule", "momentum"):
        system = System(protections=[("dp_gaussian", gaussian)], rule=rule, momentum=momentum, **size)
    elif what == "colluders":
        made = ("dp_gaussian", gaussian | together | {"colluders": colluders})
        system = System(protections=[made, hidden], reads=summed, colluders=colluders, **size)
    elif what == "shared records":
        system = System(protections=[("dp_gaussian", gaussian)], reads="uploads", **size)
    elif what == "records in a sum":
        system = System(
            protections=[("dp_gaussian", gaussian | together), hidden], reads=summed, seed=seed, **size
        )
    else:
        system = System(protections=[("central_dp", gaussian)], momentum=momentum, **size)
    if what == "weights":  # shares of noise that are multiplied by what each client holds
        counts = rng.integers(1, 200, clients).tolist()
        system = replace(
            system, protections=[("dp_gaussian", gaussian | together), hidden], reads=summed, counts=counts
        )
    if what == "clock":
        system = replace(system, protections=[("dp_gaussian", gaussian)], momentum=0.0, timed=True)
    try:
        played = distinguish(system, delta)
    except UserError:  # the wire refuses it: no bound is stated
        played = Distinction(0.0, True, [])
    observer = {"colluders": "another client", "shared records": "server", "clock": "server"}.get(what, "public")
    text = f"{what}, {clients} clients, {rounds} rounds, {holders} holders, z {z:.3g}, {rule[0]}, delta {delta:g}"
    held = frozenset({frozenset((k, 1) for k in range(holders))}) if holders > 1 else frozenset()
    unit: Unit = "record" if holders > 1 else "client"
    return Made(text, played.ledger, delta, unit, observer, held, played=played)


def lower_value(releases: Sequence[Release], delta: float, copies: int = 1) -> float:
    """An epsilon that no sound bound can be below, of a record of which one client holds so many copies."""
    draws: dict[object, list[Release]] = {}
    for number, r in enumerate(releases):
        draws.setdefault(number if r.coin == EACH else r.coin or r.round, []).append(r)
    pairs: dict[tuple[Any, ...], tuple[tuple[Array, Array], int]] = {}
    for shared in draws.values():
        times = shared[0].count if shared[0].coin == EACH else 1
        noise = tuple(sorted(r.noise_std / (r.sensitivity or 1.0) for r in shared))
        key = (shared[0].mechanism, noise, shared[0].sample_rate)
        found = pairs.get(key)
        pairs[key] = (cells(*key, copies=copies), times) if found is None else (found[0], found[1] + times)
    ways = ([(pair, n) for pair, n in pairs.values()], [((q, p), n) for (p, q), n in pairs.values()])
    return max(_composed(way, delta) for way in ways)


def cells(mechanism: str, noise: Sequence[float], rate: float, copies: int = 1) -> tuple[Array, Array]:
    """Probabilities of the outcomes of one draw, with the client and without it; each copy has its own coin."""
    from scipy.special import ndtr
    from scipy.stats import binom

    if copies > 1:  # likelihood ratios grow with the sum, so that its cells are enough
        z = noise[0]
        edges = np.linspace(-9 * z, copies + 9 * z, CELLS)
        drawn = [np.diff(ndtr((edges - shift) / z), prepend=0.0) for shift in range(copies + 1)]
        inside, outside = binom.pmf(np.arange(copies + 1), copies, rate) @ np.array(drawn), drawn[0]
        inside, outside = (np.append(v, max(0.0, 1 - float(v.sum()))) for v in (inside, outside))
        return inside, outside
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
    """Our bounds and those of other programs; runs in one child."""
    found = []
    for m in made:
        groups = towards(m.observer, m.releases, m.unit, m.overlaps)[1]
        costs = [terms(group) for group in groups.values()]
        if not costs or not all(r.noise_multiplier for group in groups.values() for r in group):
            # refused, or something is sent in clear
            found.append((math.inf, math.inf))
            continue
        bounds: list[Bound] = [tightest(counts, m.delta, PLD.Config()) for counts in costs]
        upper, counts = max(zip(bounds, costs, strict=True), key=lambda pair: pair[0].epsilon)
        other = math.inf
        if all(t.mechanism == "gaussian" and t.sampling == "none" for t in counts):
            other = gaussian(math.sqrt(sum(n / t.z**2 for t, n in counts.items())), m.delta)
        elif not explain_refusal(counts):
            other = renyi(counts, m.delta).epsilon
        found.append((upper.epsilon, other))
    return found


def compared(count: int, seed: int) -> list[Result]:
    """Every mechanism with our bound, its lower value and another program's."""
    made = list(random_mechanisms(count, seed))
    uppers = call(_uppers, SECONDS, 8.0, made)
    lowers = [lower_value(m.releases, m.delta, m.copies) if m.played is None else m.played.epsilon for m in made]
    return [Result(m, upper, low, other) for m, (upper, other), low in zip(made, uppers, lowers, strict=True)]


def too_low(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.upper < r.lower * (1 - SLACK)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    results = compared(given.count, given.seed)
    for what in KINDS[: given.count]:
        same = [r for r in results if r.made.what.partition(",")[0] == what and r.lower > 0]
        ratios, others = [r.upper / r.lower for r in same], [r.other / r.upper for r in same]
        if same:
            certified = sum(r.is_certified for r in same)
            print(
                f"{what:18} {len(same):4} ({certified} certified, {len(same) - certified} statistical)  "
                f"ours / lower {median(ratios):.4f}  others / ours {median(others):.4f}"
            )
    wrong = too_low(results)
    for r in wrong:
        print(f"TOO LOW: {r.made.what}: {r.upper:.6g}, at least {r.lower:.6g}")
    print(f"{len(results)} mechanisms, {len(wrong)} below their lower value")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    from benchmarks.privacy.mechanisms import main as start  # a child of ours knows no function of `__main__`

    start()
