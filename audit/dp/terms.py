"""Terms: releases reduced to what an accountant may look at, equal ones counted together.

One Term is one mechanism at one multiplier and one way of sampling. Unsampled Gaussian releases are
one Gaussian (Dong, Roth, Su. arXiv:1905.02383, Cor. 2), so they never cost more than one term.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fl.ledger import Mechanism, Release, Sampling

CREDITED = ("poisson", "fixed_without_replacement")  # sampling that an accountant knows how to credit


class Term(NamedTuple):
    mechanism: Mechanism
    z: float  # noise standard deviation or scale / sensitivity
    sampling: Sampling  # "none", or one of CREDITED
    rate: float

    @property
    def sampled(self) -> bool:
        return self.sampling != "none"


Terms = Mapping[Term, int]


def terms(releases: Sequence[Release]) -> dict[Term, int]:
    """How often each term occurs; releases that never happen (rate 0) are left out."""
    found: Counter[Term] = Counter()
    for r in releases:
        credited = r.sampling in CREDITED and r.sample_rate < 1
        if not r.count or (credited and r.sample_rate == 0):
            continue
        how = (r.sampling, float(r.sample_rate)) if credited else ("none", 1.0)
        found[Term(r.mechanism, float(r.noise_multiplier), *how)] += r.count
    return merged(found)


def merged(counts: Terms) -> dict[Term, int]:
    """The same cost with all unsampled Gaussian terms as one."""
    plain = {t: n for t, n in counts.items() if t.mechanism == "gaussian" and not t.sampled}
    rest = {t: n for t, n in counts.items() if t not in plain}
    if mu := total_mu(plain):
        rest[Term("gaussian", max(1 / mu, math.ulp(0.0)), "none", 1.0)] = 1
    return rest


def total_mu(counts: Terms) -> float:
    """mu of unsampled Gaussian terms together: sqrt(sum n / z^2)."""
    return math.hypot(*(math.sqrt(n) / t.z for t, n in counts.items()))


def unsampled(counts: Terms) -> dict[Term, int]:
    """As if every unit took part every time: costs no less (the mechanism is quasi-convex)."""
    found: Counter[Term] = Counter()
    for t, n in counts.items():
        found[t._replace(sampling="none", rate=1.0)] += n
    return merged(found)


def coarsened(counts: Terms, most: int) -> dict[Term, int]:
    """At most about `most` different terms, each with no more noise and no lower rate than before.

    Multipliers go down, and rates up, to a geometric grid that covers their range. One step of the
    grid is the most that a bound can lose.
    """
    if len(counts) <= most:
        return dict(counts)
    groups = {(t.mechanism, t.sampling) for t in counts}
    found: Counter[Term] = Counter()
    for mechanism, sampling in groups:
        group = {t: n for t, n in counts.items() if (t.mechanism, t.sampling) == (mechanism, sampling)}
        share = max(2.0, most / len(groups))
        zs, rates = [t.z for t in group], [t.rate for t in group]
        wide_z, wide_q = math.log(max(zs) / min(zs)), math.log(max(rates) / min(rates))
        # steps of equal size in both directions, as far as the budget of terms goes
        step = max(math.sqrt(wide_z * wide_q / share), max(wide_z, wide_q) / share, 1e-9)
        for t, n in group.items():
            z = min(zs) * math.exp(step * math.floor(math.log(t.z / min(zs)) / step))
            up = max(rates) * math.exp(-step * math.floor(math.log(max(rates) / t.rate) / step))
            found[Term(mechanism, min(z, t.z), sampling, min(1.0, max(up, t.rate)))] += n
    return dict(found)
