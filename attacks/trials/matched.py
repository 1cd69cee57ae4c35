"""Members and unseen pictures with the same mix of classes.

A critic or a generator of a client with three classes prefers pictures of these classes, seen or not. What
tells members apart must therefore be measured against unseen pictures of the same classes in the same
proportions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Images
from attacks.trials.membership import Scores
from attacks.trials.reidentification import fingerprints

Asked = TypeVar("Asked")  # a generator, or a search in one
Integers = NDArray[np.integer[Any]]
_RATIO = 5  # unseen pictures for each member, and more where that is fewer than
_ENOUGH = 1000  # unseen pictures, which rates at 1 % need


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Both sides have the same share of every class."""

    members: Images
    others: Images

    @property
    def equally_many(self) -> Images:
        """As many of the others as there are members, of each class: they come class by class."""
        step = max(1, len(self.others) // max(1, len(self.members)))
        return Images(x=self.others.x[::step], y=self.others.y[::step])


def matched(members: Images, unseen: Images, rng: np.random.Generator, most: int) -> Matched:
    """As many `members` (at most `most`) as there are unseen pictures to compare them with.

    Every member of a class is matched by equally many unseen pictures of it.
    """
    classes = np.unique(members.y)
    have = np.array([(members.y == c).sum() for c in classes], np.float64)
    there = np.array([(unseen.y == c).sum() for c in classes])
    have = np.floor(have * min(1.0, most / max(1.0, have.sum())))
    have = np.minimum(np.maximum(have, 1), there).astype(int)
    some = have > 0
    wanted = max(_RATIO, -(-_ENOUGH // max(1, int(have.sum()))))
    ratio = int(min(wanted, (there[some] // have[some]).min())) if some.any() else 1
    return Matched(members=_drawn(members, classes, have, rng), others=_drawn(unseen, classes, ratio * have, rng))


def halves(unseen: Images, rng: np.random.Generator) -> tuple[Images, Images]:
    """Unseen pictures in two random halves: some in the place of members, for negative controls."""
    order = rng.permutation(len(unseen))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    return (Images(x=unseen.x[first], y=unseen.y[first]), Images(x=unseen.x[second], y=unseen.y[second]))


def joined(images: list[Images]) -> Images:
    return Images(x=np.concatenate([i.x for i in images]), y=np.concatenate([i.y for i in images]))


def _drawn(images: Images, classes: Integers, each: Integers, rng: np.random.Generator) -> Images:
    chosen = [
        rng.choice(np.flatnonzero(images.y == c), n, replace=False)
        for c, n in zip(classes, each, strict=True)
        if n
    ]
    rows = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
    return Images(x=images.x[rows], y=images.y[rows])


def scored(pairs: Sequence[tuple[Asked, Matched]], score: Callable[[Asked, Images], NDArray[Any]]) -> Scores:
    """What is asked is given, the pictures are drawn."""
    return by_picture(
        [m for _, m in pairs],
        [score(asked, m.members) for asked, m in pairs],
        [score(asked, m.others) for asked, m in pairs],
    )


def by_picture(
    lots: Sequence[Matched], members: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]
) -> Scores:
    """Scores of every lot's pictures; one picture that several were asked about is one group."""
    first = [mark for m in lots for mark in fingerprints(m.members.x)]
    second = [mark for m in lots for mark in fingerprints(m.others.x)]
    _, group = np.unique(np.array([*first, *second], dtype="S16"), return_inverse=True)
    return Scores(
        members=np.concatenate([np.zeros(0), *members]),
        others=np.concatenate([np.zeros(0), *others]),
        member_groups=group[: len(first)],
        other_groups=group[len(first) :],
    )
