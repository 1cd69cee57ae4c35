"""Membership scores of prototypes: members of each against unseen pictures of the same class.

Same class, because a client that owns two classes would otherwise give away its labels, not its
pictures. The blind adversary scores the same candidates with another prototype of the class that
none of them is in: above 0.5 it would show that members differ from the unseen pictures as a
population, and not that they are traced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Claim, Truth
from attacks.measures.membership import Scores
from attacks.measures.prototype_trials import group
from attacks.measures.reidentification import Pool, fingerprints

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
    unseen: Scores  # half of the unseen pictures in the place of members
    null: dict[str, Scores]  # empty where no other prototype of the class exists

    @property
    def planted(self) -> bool:
        """A replayed prototype of one picture: a leak that an attack has to find."""
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
        return Scores(
            members=np.concatenate(self.members),
            others=np.concatenate(self.others),
            member_groups=np.repeat(self.names, [len(x) for x in self.members]),
            other_groups=np.repeat(self.names, [len(x) for x in self.others]),
        )


@dataclass(frozen=True, kw_only=True)
class _Case:
    row: int  # of the claim
    members: Floats
    marks: frozenset[bytes]


def traced(
    claim: Claim, truth: Truth, score: Score, limits: tuple[int, int], rng: np.random.Generator
) -> list[Bucket]:
    """Buckets by origin and number of samples; `limits`: members and unseen pictures of a prototype."""
    cases: dict[tuple[str, int], list[_Case]] = {}
    for row, (artifact, label) in enumerate(zip(claim["artifact"], claim["label"], strict=True)):
        members = truth.members(str(artifact), int(label))
        if len(members):
            origin = str(claim["origin"][row])
            case = _Case(row=row, members=members, marks=frozenset(fingerprints(members)))
            cases.setdefault((origin, group(origin, len(members))), []).append(case)
    reference = truth.reference
    pools = {int(c): Pool(reference.of_class(int(c))) for c in np.unique(claim["label"])}
    found = []
    for (origin, _), some in sorted(cases.items(), key=lambda item: item[0]):
        bucket = _bucket(origin, some, claim, pools, score, limits, rng)
        if bucket is not None:
            found.append(bucket)
    return found


def _bucket(
    origin: str, cases: list[_Case], claim: Claim, pools: dict[int, Pool], score: Score,
    limits: tuple[int, int], rng: np.random.Generator,
) -> Bucket | None:  # fmt: skip
    true, unseen, null = _Samples(), _Samples(), _Samples()
    for case in cases:
        row = case.row
        others = pools[int(claim["label"][row])].without(case.marks)
        others = others[rng.permutation(len(others))[: limits[1]]]
        members = case.members[rng.permutation(len(case.members))[: limits[0]]]
        if len(others) < 2:
            continue
        wrong = _another(case, cases, claim, rng)
        for kind, by in ((true, row), (null, wrong)):
            if by is not None:
                extractor = claim["extractors"][claim["model"][by]]
                scored = [score(claim, by, extractor.features(x)) for x in (members, others)]
                kind.add(scored[0], scored[1], row)
                if kind is true:
                    half = len(others) // 2
                    unseen.add(scored[1][:half], scored[1][half:], row)
    if not true.names:
        return None
    return Bucket(
        origin=origin, samples=float(np.median([len(c.members) for c in cases])),
        prototypes=len(true.names), scores=true.scores(), unseen=unseen.scores(),
        null={OTHER: null.scores()} if null.names else {},
    )  # fmt: skip


def _another(case: _Case, cases: list[_Case], claim: Claim, rng: np.random.Generator) -> int | None:
    """The row of another prototype of the class without any of these members; other clients first."""
    label, sender = claim["label"], claim["sender"]
    fits = [
        c.row
        for c in cases
        if label[c.row] == label[case.row] and c.row != case.row and not c.marks & case.marks
    ]
    strangers = [r for r in fits if sender[r] != sender[case.row]]
    choice = strangers or fits
    return int(rng.choice(choice)) if choice else None
