"""Residual tests: what is left of a release when the exact message is subtracted must be the declared noise.

Only an auditor who runs the federation, or a server that logs, can do this; in return it finds at once
what no guessing adversary sees, such as noise used twice. Each test has a stated chance of failing a
correct run. More noise than declared is no fault, so the spread is tested on one side only.

Independence is tested on ranks (Spearman), which hold their level for every noise without ties: all
pairs of rounds, of clients and of coordinates, by the largest absolute correlation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.ledger import Mechanism

Floats = NDArray[np.float64]
MOST_CLIENTS = 60  # pairs of clients grow with the square
MOST_VALUES = 5000  # for the shape
TESTS = 5


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test: whether the run passed, and why not in words a reader can check."""

    name: str
    passed: bool
    statistic: float
    limit: float
    text: str
    failure_rate: float  # chance of failing a correct run; 0 for a certain test


def spread_interval(residuals: Floats, alpha: float) -> tuple[float, float]:
    """Two-sided interval of the standard deviation of Gaussian noise of known mean 0."""
    from scipy import stats

    n, total = residuals.size, float((residuals.astype(np.float64) ** 2).sum())
    return (
        math.sqrt(total / float(stats.chi2.isf(alpha / 2, n))),
        math.sqrt(total / float(stats.chi2.ppf(alpha / 2, n))),
    )


def spread(residuals: Floats, mechanism: Mechanism, scale: float, alpha: float) -> Check:
    """Whether there is as much noise as declared.

    `scale` as in the ledger. Gaussian noise by chi-squared; other noise by the normal interval of its
    mean absolute value, whose spread is estimated.
    """
    from scipy import stats

    x = residuals.astype(np.float64).ravel()
    if mechanism == "gaussian":
        _, high = spread_interval(x, 2 * alpha)
        found, declared, unit = math.sqrt(float((x**2).mean())), scale, "standard deviation"
    else:
        size = np.abs(x)
        found, declared = float(size.mean()), absolute_mean(mechanism, scale)
        high = found + float(stats.norm.isf(alpha)) * float(size.std()) / math.sqrt(len(x))
        unit = "mean absolute value"
    return Check(
        name="amount of noise",
        passed=high >= declared * (1 - 1e-6),
        statistic=found / declared,
        limit=high / declared,
        text=f"{unit} {found:.4g} where the ledger says {declared:.4g}, over {len(x):,} coordinates",
        failure_rate=alpha,
    )


def shape(residuals: Floats, mechanism: Mechanism, alpha: float, rng: np.random.Generator) -> Check:
    """Whether the noise has the declared distribution, at the spread that was measured (Kolmogorov)."""
    from scipy import stats

    x = residuals.astype(np.float64).ravel()
    size = float(np.abs(x).mean())
    some = x[rng.permutation(len(x))[:MOST_VALUES]]
    if size == 0:
        return Check(
            name="shape of the noise",
            passed=False,
            statistic=1,
            limit=0,
            text="there is no noise",
            failure_rate=alpha,
        )
    law: Any = distribution(mechanism, size)
    if mechanism == "discrete_laplace":  # a uniform step on each integer makes it continuous
        some = some + rng.random(len(some))
    test: Any = stats.kstest(some, law)
    return Check(
        name="shape of the noise",
        passed=bool(test.pvalue >= alpha),
        statistic=float(test.pvalue),
        limit=alpha,
        text=f"against {mechanism.replace('_', ' ')} noise p = {test.pvalue:.2g}, on {len(some):,} coordinates",
        failure_rate=alpha,
    )


def absolute_mean(mechanism: Mechanism, scale: float) -> float:
    """E|noise| of a mechanism at the ledger's scale."""
    if mechanism == "gaussian":
        return scale * math.sqrt(2 / math.pi)
    if mechanism == "laplace":
        return scale
    ratio = math.exp(-1 / scale) if scale > 0 else 0.0
    return 2 * ratio / (1 - ratio * ratio)


def distribution(mechanism: Mechanism, absolute: float) -> Callable[[Floats], Floats]:
    """The cumulative distribution with that mean absolute value."""
    from scipy import stats

    if mechanism == "gaussian":
        spread = absolute * math.sqrt(math.pi / 2)
        return lambda x: np.asarray(stats.norm.cdf(x, scale=spread))
    if mechanism == "laplace":
        return lambda x: np.asarray(stats.laplace.cdf(x, scale=absolute))
    # 2 r / (1 - r^2) = absolute
    ratio = (math.sqrt(1 + absolute * absolute) - 1) / absolute
    whole = stats.dlaplace(-math.log(ratio))

    def stepped(x: Floats) -> Floats:
        below = np.floor(x)
        low, high = whole.cdf(below - 1), whole.cdf(below)
        return np.asarray(low + (x - below) * (high - low))

    return stepped


def independence(rows: Floats, what: str, alpha: float) -> Check:
    """Whether rows [a, n] are unrelated, by the largest rank correlation of two of them."""
    from scipy import stats

    a, n = rows.shape
    name = f"independence between {what}"
    if a < 2 or n < 20:
        return Check(
            name=name,
            passed=True,
            statistic=0,
            limit=1,
            failure_rate=0,
            text=f"not tested: {a} {what} of {n} values",
        )
    ranks = stats.rankdata(rows, axis=1) - (n + 1) / 2
    norms = np.sqrt((ranks**2).sum(1, keepdims=True))
    ranks = ranks / np.where(norms > 0, norms, 1)
    correlation = ranks @ ranks.T
    pairs = np.triu_indices(a, 1)
    largest = float(np.abs(correlation[pairs]).max())
    limit = float(stats.norm.isf(alpha / (2 * len(pairs[0])))) / math.sqrt(n - 1)
    return Check(
        name=name,
        passed=largest <= limit,
        statistic=largest,
        limit=limit,
        text=f"the largest correlation of {len(pairs[0]):,} pairs of {what} is {largest:.3f}; "
        f"chance explains {limit:.3f}",
        failure_rate=alpha,
    )


def checks(
    residuals: Floats, mechanism: Mechanism, scale: float, rng: np.random.Generator, alpha: float
) -> list[Check]:
    """All tests on residuals [rounds, clients, coordinates]; together they fail at most alpha."""
    each = alpha / TESTS
    rounds, _, coordinates = residuals.shape
    few = residuals[:, :MOST_CLIENTS]
    by_client = few.transpose(1, 0, 2).reshape(few.shape[1], -1)
    by_coordinate = residuals.transpose(2, 0, 1).reshape(coordinates, -1)
    return [
        spread(residuals, mechanism, scale, each),
        shape(residuals, mechanism, each, rng),
        independence(residuals.reshape(rounds, -1), "rounds", each),
        independence(by_client, "clients", each),
        independence(by_coordinate, "coordinates", each),
    ]
