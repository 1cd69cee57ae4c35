"""Evidence on claimed label counts: exact rows and overlap, beside guesses that are told the totals."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import CONFIDENCE, Judge
from fedaudit.attacks.evidence import Baseline, Evidence

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
Condition = Mapping[str, float | str]


def blind_counts(true: Counts, prior: NDArray[np.float64]) -> dict[str, Counts]:
    """Adversaries who are told each total, which most methods send anyway; prior [C]."""
    total = true.sum(axis=1)
    return {"uniform": spread(total, np.ones(true.shape[1])), "global prior": spread(total, prior)}


def spread(totals: Counts, shares: NDArray[np.float64]) -> Counts:
    """Each total split over the classes in proportion, by largest remainders; [k] -> [k, C]."""
    exact = totals[:, None] * shares / shares.sum()
    parts = np.floor(exact).astype(np.int64)
    order = np.argsort(parts - exact, axis=1, kind="stable")  # largest remainder first
    place = np.argsort(order, axis=1)
    return np.asarray(parts + (place < (totals - parts.sum(axis=1))[:, None]))


def overlap(claimed: Counts, true: Counts) -> NDArray[np.float64]:
    """Share of a client's examples that the claim places in the right class, [k]."""
    larger = np.maximum(np.maximum(claimed.sum(axis=1), true.sum(axis=1)), 1)
    return np.asarray(np.minimum(claimed, true).sum(axis=1) / larger)


def measure_interchange(hits: Callable[[Counts], NDArray[Any]], claimed: Counts) -> Baseline:
    """What the claims are worth as claims about other clients, on average over all ways to pass them round.

    Claims that say much of everybody hit by chance, and these say as much.
    """
    shifts = range(1, len(claimed))
    found = [hits(np.roll(claimed, s, axis=0)).mean() for s in shifts]
    return Baseline(name="claims about another client", value=float(np.mean(found)) if found else 0.0)


def exact_match(
    claimed: Counts,
    true: Counts,
    blind: Mapping[str, Counts],
    condition: Condition,
    control: Literal["none", "positive", "negative"] = "none",
    *,
    groups: stats.Groups,
    note: str = "clients with all classes right",
    looks: int = 1,
) -> Evidence:
    """How often all counts of a row are right; controls have the confidence of controls."""

    def hits(guess: Counts) -> NDArray[Any]:
        return np.asarray((guess == true).all(axis=1))

    judge = Judge(looks=looks, control=control, condition=condition)
    others = {name: hits(guess) for name, guess in blind.items()}
    return judge.judge_hits("count_exact_match", hits(claimed), others, groups=groups, note=note)


def overlap_evidence(
    claimed: Counts,
    true: Counts,
    blind: Mapping[str, Counts],
    condition: Condition,
    rng: np.random.Generator,
    looks: int = 1,
    *,
    groups: stats.Groups,
) -> Evidence:
    """The mean share of examples that are placed in the right class."""
    values: NDArray[Any] = overlap(claimed, true)
    judge = Judge(looks=looks, condition=condition, note="share of a client's examples placed in the right class")
    others = {name: overlap(guess, true) for name, guess in blind.items()}
    return judge.judge_values("count_overlap", values, others, rng, groups=groups, bounds=(0, 1))


def measure_revelations(
    claimed: Counts, true: Counts, blind: Mapping[str, Counts], small: int, condition: Condition
) -> list[Evidence]:
    """What counts tell of people: who stands in a small group, and which clients a rare class gives away.

    The share of all examples in groups (one client's examples of one class) of at most `small` whose size is
    claimed exactly; and of clients that hold a rare class (one that at most a tenth of them hold, or one) and are
    claimed to hold just the rare classes that they do. A guess is credited with what it gets right. The examples
    of one client, a row, are known together or not at all.
    """
    cells = (true > 0) & (true <= small)
    holders = (true > 0).sum(axis=0)
    rare = (holders > 0) & (holders <= max(1, len(true) // 10))

    def in_cells(guess: Counts) -> NDArray[Any]:
        return np.repeat(cells & (guess == true), true.ravel())

    def find_holders(guess: Counts) -> NDArray[Any]:
        same = ((guess > 0) == (true > 0))[:, rare].all(axis=1)
        return np.asarray(same & (true > 0)[:, rare].any(axis=1))

    def share(measure: str, hits: Callable[[Counts], NDArray[Any]], note: str, clients: NDArray[Any]) -> Evidence:
        others = {name: hits(guess) for name, guess in blind.items()}
        passed = [measure_interchange(hits, claimed)]
        judge = Judge(condition=condition, note=note)
        return judge.judge_hits(measure, hits(claimed), others, groups=clients, baselines=passed)

    rows = np.arange(len(true))
    owners = np.repeat(rows, true.sum(axis=1))
    found = [share("examples_in_small_cells", in_cells, f"groups of at most {small}", owners)]
    if rare.any():
        found.append(share("rare_class_holders", find_holders, f"{int(rare.sum())} rare classes", rows))
    return found


def count_error(
    measure: str,
    claimed: NDArray[Any],
    true: Counts,
    blind: Mapping[str, Counts],
    condition: Condition,
    rng: np.random.Generator,
    note: str,
) -> Evidence:
    """The mean distance of claimed counts, fractional or not, from the true ones."""
    error = np.abs(claimed - true).mean(axis=1)  # a client's mean over classes
    others = [Baseline(name=name, value=float(np.abs(guess - true).mean())) for name, guess in blind.items()]
    judge = Judge(condition=condition, note=note)
    interval = judge.bound_mean(error, rng, groups=stats.INDEPENDENT)  # a client each
    return judge.state(measure, float(error.mean()), len(true), interval, others)


def possible_values(
    read: Values, deviation: Values, true: Counts, condition: Condition, rng: np.random.Generator
) -> Evidence:
    """How many whole numbers a count may be after noise, in its 95 % interval."""
    reach = stats.normal_reach(1 - CONFIDENCE) * deviation[:, None]
    low, high = np.maximum(read - reach, 0), np.maximum(read + reach, 0)
    possible = np.maximum(np.floor(high) - np.ceil(low) + 1, 1)
    inside = (np.abs(true - read) <= reach) | (true == np.rint(read))
    return Judge(condition=condition).state(
        "count_possible_values",
        float(possible.mean()),
        len(true),
        stats.mean_interval(possible.mean(axis=1), rng, groups=stats.INDEPENDENT),  # a client each
        [Baseline(name="any count up to the client's total", value=float(true.sum(axis=1).mean() + 1))],
        note=f"in the {CONFIDENCE:.0%} interval of a count, noise having a deviation of "
        f"{deviation.mean():.3g}; the interval holds {inside.mean():.0%} of the true counts",
    )
