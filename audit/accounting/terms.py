"""Terms: releases reduced to what an accountant may look at, equal ones counted together.

One Term is one mechanism at one multiplier and one way of sampling. Unsampled Gaussian releases are
one Gaussian (Dong, Roth, Su. arXiv:1905.02383, Cor. 2), so they never cost more than one term.

Sampling is credited once a draw. What one sender releases under one draw of itself (in one round, or in
all rounds of a period that share their draw) is one sampled release: Gaussian releases of z_1, z_2, ...
are one of 1 / z^2 = sum 1 / z_i^2, and pure ones add up their epsilons, before anything is amplified.

An observer who is drawn as others are, and told of all with whom it is, sees through the draws of its own rounds.
At rate q it learns in a round what the sampled release tells (1 - q), all of it (q^2), or nothing (q (1 - q)).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fedaudit.fl.ledger import EACH, MEMBER, Mechanism, Release, Sampling

CREDITED = ("poisson", "fixed_without_replacement")  # sampling that an accountant knows how to credit


class Term(NamedTuple):
    mechanism: Mechanism
    z: float  # noise standard deviation or scale / sensitivity
    sampling: Sampling  # "none", or one of CREDITED
    rate: float
    copies: int = 1  # of the unit, each sampled by itself
    told: bool = False  # whether the observer knows who takes part in the rounds that it is drawn for itself

    @property
    def sampled(self) -> bool:
        return self.sampling != "none"


Terms = Mapping[Term, int]


def terms(releases: Sequence[Release]) -> dict[Term, int]:
    """How often each term of one sender occurs; releases that never happen (rate 0) are left out."""
    found: Counter[Term] = Counter()
    draws: dict[object, list[Release]] = defaultdict(list)
    for r in releases:
        if r.coin == EACH and r.unit == "record" and is_amplifiable(r):
            found[_make_term(r, sampled=True)] += r.count if r.sample_rate else 0
        else:
            draws[r.unit, r.coin or r.round].append(r)
    for shared in draws.values():
        found.update(_join_one_draw(shared))
    return merge_gaussians({t: n for t, n in found.items() if n})


def is_amplifiable(r: Release) -> bool:
    """Whether this release may be amplified: Poisson sampling hides one more or less, a fixed number one
    replaced."""
    sized = r.sampling == "fixed_without_replacement"
    return r.sampling in CREDITED and r.sample_rate < 1 and sized == (r.adjacency == "replace_one")


def _make_term(r: Release, sampled: bool) -> Term:
    term = Term(r.mechanism, float(r.noise_multiplier), *_read_law(r))
    return term if sampled else in_full(term)


def _read_law(r: Release) -> tuple[Sampling, float, int, bool]:
    return r.sampling, float(r.sample_rate), max(1, r.copies), MEMBER in r.participation_seen_by


def in_full(t: Term) -> Term:
    """The term as if its unit, with all copies, took part every time: costs no less."""
    return Term(t.mechanism, t.z / t.copies, "none", 1.0)


def _join_one_draw(shared: Sequence[Release]) -> dict[Term, int]:
    """The releases of one sender under one draw, as one term where sampling is credited.

    Nothing is where one of them tells the observer who takes part, where they contradict each other about
    the draw, or where Gaussian noise and pure noise would have to be amplified together.
    """
    inner, rest = (
        _count_in_full(r for r in shared if is_amplifiable(r)),
        _count_in_full(r for r in shared if not is_amplifiable(r)),
    )
    laws = {_read_law(r) for r in shared if is_amplifiable(r)}
    kinds = {t.mechanism == "gaussian" for t in inner}
    seen = any(r.sampling == "unknown" or _is_credited(r) for r in shared)
    if seen or len(laws) != 1 or len(kinds) > 1:
        return rest + inner
    [(sampling, rate, copies, told)] = laws
    if rate:  # of the copies the draw is one, for all that is released under it
        for t, n in together(inner).items():
            rest[Term(t.mechanism, t.z * copies, sampling, rate, copies, told)] += n
    return rest


def _count_in_full(releases: Iterable[Release]) -> Counter[Term]:
    found: Counter[Term] = Counter()
    for r in releases:
        if r.count:
            found[_make_term(r, sampled=False)] += r.count
    return found


def _is_credited(r: Release) -> bool:
    return r.unit == "client" and not r.sender.endswith("/*") and not is_amplifiable(r)


def together(counts: Terms) -> dict[Term, int]:
    """Unsampled terms as one, where one mechanism stands for all: Gaussian ones, or pure ones.

    No pure mechanism loses more than binary randomised response at its epsilon (Kairouz, Oh, Viswanath.
    arXiv:1311.0776, Thm 3.4), and the epsilons of pure mechanisms add up.
    """
    if sum(counts.values()) <= 1:
        return dict(counts)
    if all(t.mechanism == "gaussian" for t in counts):
        return merge_gaussians(counts)
    total = math.fsum(n / t.z for t, n in counts.items())
    return {Term("randomized_response", 1 / total, "none", 1.0): 1}


def merge_gaussians(counts: Terms) -> dict[Term, int]:
    """The same cost with all unsampled Gaussian terms as one."""
    plain = {t: n for t, n in counts.items() if t.mechanism == "gaussian" and not t.sampled}
    rest = {t: n for t, n in counts.items() if t not in plain}
    if mu := total_mu(plain):
        rest[Term("gaussian", max(1 / mu, math.ulp(0.0)), "none", 1.0)] = 1
    return rest


def total_mu(counts: Terms) -> float:
    """mu of unsampled Gaussian terms together: sqrt(sum n / z^2)."""
    return math.hypot(*(math.sqrt(n) / t.z for t, n in counts.items()))


def drop_sampling(counts: Terms) -> dict[Term, int]:
    """As if every unit took part every time: costs no less (the mechanism is quasi-convex)."""
    found: Counter[Term] = Counter()
    for t, n in counts.items():
        found[in_full(t)] += n
    return merge_gaussians(found)


def creditable(counts: Terms) -> dict[Term, int]:
    """The same terms where every engine's amplification is proved, never cheaper.

    A pure release of epsilon from a fixed number of clients is pure at ln(1 + q (e^epsilon - 1)) for one
    replaced (Balle, Barthe, Gaboardi. arXiv:1807.01647, Thm 10), so it is that one without sampling. Poisson
    sampling is not credited beside a fixed number: it speaks of other neighbours.
    """
    sized = any(t.sampling == "fixed_without_replacement" for t in counts)
    found: Counter[Term] = Counter()
    for t, n in counts.items():
        plain = in_full(t)
        if t.sampling == "fixed_without_replacement" and t.mechanism != "gaussian":
            whole = 1 / t.z
            pure = whole + math.log(t.rate + (1 - t.rate) * math.exp(-whole))
            plain = Term("randomized_response", 1 / pure, "none", 1.0)
            found[plain] += n
        else:
            found[plain if sized and t.sampling == "poisson" else t] += n
    return merge_gaussians(found)


def coarsen_terms(counts: Terms, most: int) -> dict[Term, int]:
    """At most about `most` different terms, each with no more noise and no lower rate than before.

    Terms in one cell of a geometric grid become one, of the cell's least multiplier and highest rate. One
    step of the grid is the most that a bound can lose.
    """
    if len(counts) <= most:
        return dict(counts)
    groups = {t._replace(z=0.0, rate=1.0) for t in counts}
    found: Counter[Term] = Counter()
    for kind in groups:
        group = {t: n for t, n in counts.items() if t._replace(z=0.0, rate=1.0) == kind}
        share = max(2.0, most / len(groups))
        zs, rates = [t.z for t in group], [t.rate for t in group]
        wide_z, wide_q = math.log(max(zs) / min(zs)), math.log(max(rates) / min(rates))
        # steps of equal size in both directions, as far as the budget of terms goes
        step = max(math.sqrt(wide_z * wide_q / share), max(wide_z, wide_q) / share, 1e-9)
        cells: dict[tuple[int, int], list[Term]] = defaultdict(list)
        for t in group:
            cell = (math.log(t.z / min(zs)) / step, math.log(max(rates) / t.rate) / step)
            cells[math.floor(cell[0]), math.floor(cell[1])].append(t)
        for alike in cells.values():
            least, most_often = min(t.z for t in alike), max(t.rate for t in alike)
            found[kind._replace(z=least, rate=most_often)] += sum(group[t] for t in alike)
    return dict(found)
