"""Membership scores of prototypes: members of each against non-members of the same class.

Same class, because a client that owns two classes would otherwise give away its labels, not its
images. The blind adversary scores the same candidates with another prototype of the class that
none of them is in: above 0.5 it would show that members differ from the non-members as a
population, and not that they are traced.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.anyone import First, first
from fedaudit.attacks.evaluation.membership import Scores, clustered, halves
from fedaudit.attacks.evaluation.reidentification import Pool, fingerprints
from fedaudit.attacks.prototypes._trials import group

Floats = NDArray[np.floating[Any]]
Score = Callable[[Claim, int, Floats], Floats]  # claim, row, features [m, D] -> [m]

OTHER = "another prototype of the class"


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Scores of prototypes with about as many samples behind them."""

    origin: str
    samples: float  # median n
    prototypes: int
    scores: Scores
    non_members: Scores  # half of the non-members in the place of members
    against: str  # what the non-members are
    null: dict[str, Scores]  # empty where no other prototype of the class exists
    firsts: list[First]  # of each prototype, whether any member scores highest
    null_firsts: list[First]

    @property
    def planted(self) -> bool:
        """A replayed prototype of one image: a leak that an attack has to find."""
        return self.origin == "replayed" and self.samples == 1


@dataclass
class _Samples:
    """Scores of one kind, as they come in."""

    members: list[Floats] = field(default_factory=list)
    others: list[Floats] = field(default_factory=list)
    names: list[int] = field(default_factory=list)

    def add(self, members: Floats, others: Floats, name: int) -> None:
        self.members.append(members)
        self.others.append(others)
        self.names.append(name)

    def scores(self) -> Scores:
        return clustered(self.members, self.others, names=self.names)


@dataclass(frozen=True, kw_only=True)
class _Case:
    row: int  # of the claim
    members: Floats
    marks: frozenset[bytes]
    pool: Pool  # non-members of the class
    against: str  # what they are


def traced(
    claim: Claim, truth: Truth, score: Score, limits: tuple[int, int], rng: np.random.Generator
) -> list[Bucket]:
    """Buckets by origin and number of samples; `limits`: members and non-members of a prototype."""
    return _Tracer(claim, truth, score, limits, rng).buckets()


class _Tracer:
    def __init__(
        self, claim: Claim, truth: Truth, score: Score, limits: tuple[int, int], rng: np.random.Generator
    ) -> None:
        self._claim, self._score, self._limits, self._rng = claim, score, limits, rng
        self._truth = truth
        self._pools: dict[tuple[int, frozenset[int]], Pool] = {}  # class, clients
        self._features: dict[tuple[int, int], tuple[Pool, Floats]] = {}  # model, pool's id -> those of the pool
        self._cases: dict[tuple[str, int], list[_Case]] = {}
        pairs = zip(claim["artifact"], claim["label"], strict=True)
        for row, (artifact, label) in enumerate(pairs):
            members = truth.members(str(artifact), int(label))
            if len(members):
                origin = str(claim["origin"][row])
                marks = frozenset(fingerprints(members))
                pool, against = self._non_members(int(label), truth.heard(str(artifact)))
                case = _Case(row=row, members=members, marks=marks, pool=pool, against=against)
                self._cases.setdefault((origin, group(origin, len(members))), []).append(case)

    def _non_members(self, label: int, clients: frozenset[int]) -> tuple[Pool, str]:
        """Of that class: the clients' own where two are left of them, else the reference's."""
        unseen = self._truth.unseen(clients)
        if (unseen.images.y == label).sum() < 2:
            clients, unseen = frozenset(), self._truth.unseen(())
        if unseen.images is self._truth.reference:
            clients = frozenset()
        if (label, clients) not in self._pools:
            self._pools[label, clients] = Pool(unseen.images.of_class(label))
        return self._pools[label, clients], unseen.words

    def buckets(self) -> list[Bucket]:
        keys = sorted(self._cases)
        return [b for b in (self._bucket(k[0], self._cases[k]) for k in keys) if b is not None]

    def _bucket(self, origin: str, cases: list[_Case]) -> Bucket | None:
        true, non_members, null = _Samples(), _Samples(), _Samples()
        firsts, null_firsts = list[First](), list[First]()
        for case in cases:
            rows = case.pool.rows_without(case.marks)
            rows = rows[self._rng.permutation(len(rows))[: max(self._limits[1], len(case.members))]]
            if len(rows) < 2:
                continue
            kept = self._rng.permutation(len(case.members))[: self._limits[0]]
            every, others = self._scores(case.row, case.pool, case.members, rows)
            firsts.append(first(every, others))
            members, others = every[kept], others[: self._limits[1]]
            true.add(members, others, case.row)
            non_members.add(*halves(others, self._rng), case.row)
            wrong = self._another(case, cases)
            if wrong is not None:
                every, others = self._scores(wrong, case.pool, case.members, rows)
                null_firsts.append(first(every, others))
                null.add(every[kept], others[: self._limits[1]], case.row)
        if not true.names:
            return None
        return Bucket(
            origin=origin,
            samples=float(statistics.median_high(len(c.members) for c in cases)),
            prototypes=len(true.names),
            scores=true.scores(),
            non_members=non_members.scores(),
            against=" or ".join(sorted({c.against for c in cases})),
            null={OTHER: null.scores()} if null.names else {},
            firsts=firsts,
            null_firsts=null_firsts,
        )

    def _scores(
        self, row: int, pool: Pool, members: Floats, non_members: NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """How prototype `row` scores these members and these images of the pool."""
        model = int(self._claim["model"][row])
        extractor = self._claim["extractors"][model]
        if (model, id(pool)) not in self._features:  # hundreds of prototypes share a model
            self._features[model, id(pool)] = pool, extractor.features(pool.images)
        features = self._features[model, id(pool)][1][non_members]
        return (
            self._score(self._claim, row, extractor.features(members)),
            self._score(self._claim, row, features),
        )

    def _another(self, case: _Case, cases: list[_Case]) -> int | None:
        """The row of a prototype of the class without any of these members.

        Another client's with as many samples, else another client's, else the same client's.
        """
        sender = self._claim["sender"]
        every = [c for group in self._cases.values() for c in group]
        for some, strangers in ((cases, True), (every, True), (cases, False)):
            fits = [
                c.row
                for c in some
                if self._label(c) == self._label(case)
                and (sender[c.row] != sender[case.row] or not strangers)
                and not c.marks & case.marks
            ]
            if fits:
                return int(self._rng.choice(fits))
        return None

    def _label(self, case: _Case) -> int:
        return int(self._claim["label"][case.row])
