"""Each fact read from the table of numbers that tells it best: by ridge regression, or by trees.

What a table tells of a fact is R2 of readings of plays that were left out: 1 says that it stands there exactly. A
number of examples is read as itself, or as its share of all of them, times how many these are; whether a class is
held as itself, or from how many there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.messages._columns import add_reciprocals

Values = NDArray[np.float64]
FOLDS = 5
LEAST_PLAYS = 20  # fewer say nothing of a reading
PENALTIES = 10.0 ** np.array([-10, -6, -3, -2, -1, 0, 1])  # times the number of plays
EXACT = 0.98  # R2, from which no other reading is looked for
WORTH = 0.2  # R2 of FEW trees in the first fold, below which no others are grown
FEW, TREES = 10, 20
MOST_TRIED = 60  # pairs of a table and a fact for which a few trees are grown, at most
SAME = 1e-6  # of R2 below 1: a fact is read exactly, and not from more numbers than that takes


@dataclass(frozen=True)
class Reading:
    """What is read of some facts [F], of plays that were left out in turn, and of the rest."""

    source: list[str]  # the table that each was read from
    r2: Values  # [F], -inf: nothing is known of it
    plays: Values  # [m, F]
    rest: Values  # [e, F]

    def improve(self, source: str, fact: int, r2: float, plays: Values, rest: Values) -> None:
        """Take another reading of a fact where that is better."""
        if r2 > self.r2[fact] and self.r2[fact] < 1 - SAME:
            self.source[fact], self.r2[fact] = source, r2
            self.plays[:, fact], self.rest[:, fact] = plays, rest


def read_facts(tables: Mapping[str, Values], facts: Values, shares: Values, rest: int, seed: int) -> Reading:
    """The best reading of each fact.

    Parameters
    ----------
    tables : [m + e, D] numbers of plays, and of messages that are to be read, the narrowest first; may be empty.
    facts : [m, 2 C + 1] of plays: how many examples there are, how many of each class, whether there are any.
    shares : [m, C] of each class.
    rest : e, how many are to be read.
    """
    many, count = facts.shape
    found = Reading([""] * count, np.full(count, -np.inf), np.zeros((many, count)), np.zeros((rest, count)))
    if many < LEAST_PLAYS or not tables:
        return found
    classes, linear = shares.shape[1], dict[str, tuple[Values, Values, Values]]()
    for name, table in tables.items():
        linear[name] = fit_ridge(add_reciprocals(table), np.concatenate([facts, shares], axis=1))
        r2, plays, others = linear[name]
        for fact in range(count):
            found.improve(name, fact, r2[fact], plays[:, fact], others[:, fact])
    for name, (_, plays, others) in linear.items():
        for c in range(classes):
            read = plays[:, count + c] * found.plays[:, 0]
            found.improve(
                name, 1 + c, score(read, facts[:, 1 + c]), read, others[:, count + c] * found.rest[:, 0]
            )
    for c in range(classes):
        plays, others = ((r[:, 1 + c] > 0.5).astype(np.float64) for r in (found.plays, found.rest))
        held = 1 + classes + c
        found.improve(found.source[1 + c], held, score(plays, facts[:, held]), plays, others)
    _grow_forests(found, tables, facts, {name: r2[:count] for name, (r2, _, _) in linear.items()}, seed)
    return found


def fit_ridge(table: Values, facts: Values) -> tuple[Values, Values, Values]:
    """R2 [F], readings of plays that were left out [m, F] and of the rest [e, F]; a penalty for each fact."""
    many = len(facts)
    fold = np.arange(many) % FOLDS
    plays = np.zeros((len(PENALTIES), *facts.shape))
    for i in range(FOLDS):
        out = fold == i
        plays[:, out] = _solve(table[:many][~out], facts[~out], table[:many][out])
    each = np.stack([[score(p[:, f], facts[:, f]) for f in range(facts.shape[1])] for p in plays])
    best, fact = each.argmax(axis=0), np.arange(facts.shape[1])
    rest = _solve(table[:many], facts, table[many:])
    return each[best, fact], plays[best, :, fact].T, rest[best, :, fact].T


def _solve(table: Values, facts: Values, others: Values) -> Values:
    """[P, e, F] of other rows, with each penalty."""
    mean, spread = table.mean(axis=0), table.std(axis=0)
    kept = spread > 1e-9 * np.abs(table).max(axis=0, initial=0.0)
    table, others = ((t[:, kept] - mean[kept]) / spread[kept] for t in (table, others))
    middle = facts.mean(axis=0)
    left, size, right = np.linalg.svd(table, full_matrices=False)
    along, target = others @ right.T, left.T @ (facts - middle)
    return np.stack([middle + along @ ((size / (size**2 + p * len(table)))[:, None] * target) for p in PENALTIES])


def _grow_forests(
    found: Reading, tables: Mapping[str, Values], facts: Values, linear: Mapping[str, Values], seed: int
) -> None:
    """Read by trees what is not exact by now, each fact from the table that a few of them read best."""
    pairs = [(name, fact) for name in tables for fact in np.flatnonzero(found.r2 < EXACT).tolist()]
    pairs = sorted((p for p in pairs if np.isfinite(found.r2[p[1]])), key=lambda p: -linear[p[0]][p[1]])
    many, fold = len(facts), np.arange(len(facts)) % FOLDS
    best, first = dict[int, tuple[float, str]](), fold == 0
    for name, fact in pairs[:MOST_TRIED]:
        table, truth = tables[name][:many], facts[:, fact]
        few = score(_predict(table[~first], truth[~first], table[first], FEW, seed), truth[first])
        least = max(WORTH, score(found.plays[first, fact], truth[first]))
        if few > max(least, best.get(fact, (-np.inf, ""))[0]):
            best[fact] = few, name
    for fact, (_, name) in best.items():
        table, truth, plays = tables[name], facts[:, fact], np.zeros(many)
        for out in (fold == i for i in range(FOLDS)):
            plays[out] = _predict(table[:many][~out], truth[~out], table[:many][out], TREES, seed)
        rest = _predict(table[:many], truth, table[many:], TREES, seed)
        found.improve(name, fact, score(plays, truth), plays, rest)


def _predict(table: Values, fact: Values, others: Values, trees: int, seed: int) -> Values:
    """Of others [e, D] what trees read that are grown on a table [m, D] and what is known of it [m]."""
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(trees, max_features=0.5, min_samples_leaf=2, random_state=seed)
    return np.asarray(forest.fit(table, fact).predict(others))


def score(read: Values, fact: Values) -> float:
    """R2 of readings [m] of a fact, -inf where it is the same in all plays."""
    spread = float(((fact - fact.mean()) ** 2).sum())
    return 1 - float(((fact - read) ** 2).sum()) / spread if spread > 0 else -np.inf
