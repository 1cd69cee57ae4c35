"""Members and non-members with the same mix of classes.

A critic or a generator of a client with three classes prefers images of these classes, seen or not. What
tells members apart must therefore be measured against non-members of the same classes in the same
proportions.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.flagging import ScoredPeople
from fedaudit.attacks.evaluation.membership import Scores, score_clusters
from fedaudit.attacks.modality.images import fingerprints

Queried = TypeVar("Queried")  # a generator, or a search in one
Integers = NDArray[np.integer[Any]]
_RATIO = 5  # non-members for each member, and more where that is fewer than
_ENOUGH = 1000  # non-members, which rates at 1 % need


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Both sides have the same share of every class."""

    members: Examples
    others: Examples
    rows: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # which of all members these are

    @property
    def equally_many(self) -> Examples:
        """As many of the others as there are members, of each class: they come class by class."""
        step = max(1, len(self.others) // max(1, len(self.members)))
        return Examples(x=self.others.x[::step], y=self.others.y[::step])


def match_members(members: Examples, non_members: Examples, rng: np.random.Generator, most: int) -> Matched:
    """As many `members` (at most `most`) as there are non-members to compare them with.

    Every member of a class is matched by equally many non-members of it.
    """
    classes = np.unique(members.y)
    have = np.array([(members.y == c).sum() for c in classes], np.float64)
    there = np.array([(non_members.y == c).sum() for c in classes])
    have = np.floor(have * min(1.0, most / max(1.0, have.sum())))
    have = np.minimum(np.maximum(have, 1), there).astype(int)
    some = have > 0
    wanted = max(_RATIO, -(-_ENOUGH // max(1, int(have.sum()))))
    ratio = int(min(wanted, (there[some] // have[some]).min())) if some.any() else 1
    rows = _draw_rows(members, classes, have, rng)
    others = non_members.only(_draw_rows(non_members, classes, ratio * have, rng))
    return Matched(members=members.only(rows), others=others, rows=rows)


def score_client(
    client: int,
    truth: Truth,
    rng: np.random.Generator,
    score: Callable[[Examples], NDArray[Any]],
    most: int = sys.maxsize,
    members: int = sys.maxsize,
) -> ScoredPeople:
    """Scores of a client's people, and of at most about `most` people of the same classes whom nobody trained on.

    Of more than `members` people of the client so many are drawn.

    These have the client's mix of classes, where there are half as many of each at least. Of a class without
    them nobody can be compared.
    """
    own, unseen = truth.client_examples(client), truth.unseen([client]).images
    classes = np.intersect1d(own.y, unseen.y)
    have, there = (np.array([(some.y == c).sum() for c in classes]) for some in (own, unseen))
    ratio = max(0.5, float((there / have).min())) if len(classes) else 0.0
    ratio = min(ratio, most / max(1, have.sum()))
    each = np.minimum(there, np.ceil(ratio * have)).astype(int)
    rows = np.flatnonzero(np.isin(own.y, classes))
    rows = rows if len(rows) <= members else np.sort(rng.permutation(rows)[:members])
    others = unseen.only(_draw_rows(unseen, classes, each, rng))
    if not len(rows) or not len(others):
        nothing = np.zeros(0)
        return ScoredPeople(client=client, rows=[], scores=nothing, held_out=[], held_out_scores=nothing)
    return ScoredPeople(
        client=client,
        rows=truth.client_rows(client)[rows].tolist(),
        scores=score(own.only(rows)),
        held_out=fingerprints(others.x),
        held_out_scores=score(others),
    )


def halves(non_members: Examples, rng: np.random.Generator) -> tuple[Examples, Examples]:
    """As membership.halves: some in the place of members, for negative controls."""
    first, second = (np.sort(rows) for rows in membership.halves(np.arange(len(non_members)), rng))
    return non_members.only(first), non_members.only(second)


def _draw_rows(images: Examples, classes: Integers, each: Integers, rng: np.random.Generator) -> Integers:
    chosen = [
        rng.choice(np.flatnonzero(images.y == c), n, replace=False)
        for c, n in zip(classes, each, strict=True)
        if n
    ]
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def score_pairs(
    pairs: Sequence[tuple[Queried, Matched]], score: Callable[[Queried, Examples], NDArray[Any]]
) -> Scores:
    """What each of these that are queried says of its images."""
    return by_query(
        [m for _, m in pairs],
        [score(queried, m.members) for queried, m in pairs],
        [score(queried, m.others) for queried, m in pairs],
    )


def by_query(sets: Sequence[Matched], members: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]) -> Scores:
    """Scores of every set's images; of few sets, one image that is in several is one group."""
    first = [mark for m in sets for mark in fingerprints(m.members.x)]
    second = [mark for m in sets for mark in fingerprints(m.others.x)]
    _, group = np.unique(np.array([*first, *second], dtype="S16"), return_inverse=True)
    return score_clusters(members, others, (group[: len(first)], group[len(first) :]))
