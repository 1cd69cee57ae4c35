"""From facts about clients to people: who stands in a small group about which a claim is right.

A group is one class of one client. What is known of it tells of its people only where they are fewer than SMALL;
so everybody is tested, and only they can be hit. Luck is what the same claims hit as claims about other clients.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.people import SMALL, PeopleCount
from fedaudit.fl.kinds import Kind

Counts = NDArray[np.int64]
Claimed = NDArray[Any]  # [k, ...]
# claims [k, ...] and how many of each class clients hold [k, C] -> of which groups a claim is right [k, C]
Rule = Callable[[Claimed, Counts], NDArray[np.bool_]]
SIZE_KNOWN, CLASS_KNOWN = "the size is known", "it is known that the client holds some"
# kinds in which a label stands beside the numbers of each example
BY_EXAMPLE = frozenset({Kind.FEATURES, Kind.SMASHED})
KEEP_LABELS = (
    "keep labels at the clients and compute the loss there (split_u_shape), or choose a method that sends "
    "nothing of single examples"
)
KNOWN = f"in a group of fewer than {SMALL} people, of which {{}}"


def count_each_kind(claim: Claim, claimed: Claimed, is_right: Rule, truth: Truth, fact: str) -> list[PeopleCount]:
    """Whom claims tell of that were read from messages of several kinds; `claim` has client and kind [k]."""
    people = list[PeopleCount]()
    for kind in dict.fromkeys(claim["kind"].tolist()):
        rows = claim["kind"] == kind
        people += count_known(claim["client"][rows], claimed[rows], is_right, truth, fact, Kind(kind))
    return people


def count_known(
    clients: NDArray[np.int64],
    claimed: Claimed,
    is_right: Rule,
    truth: Truth,
    fact: str,
    kind: Kind | None = None,
) -> list[PeopleCount]:
    """Whom claims about clients tell of, one claim a row.

    Parameters
    ----------
    fact : what is known of a group, in words: "the size is known".
    kind : of the messages that were read, where the attack reads several.
    """
    alone = np.flatnonzero(clients != SEVERAL)  # what holds of a sum holds of a larger group
    if not len(alone):
        return []
    clients, claimed = clients[alone], claimed[alone]
    counts = np.stack([truth.label_counts(int(k)) for k in clients])
    small = (counts > 0) & (counts < SMALL)
    right = is_right(claimed, counts) & small
    found = CountedPeople(KNOWN.format(fact), kind=kind)
    for row, client in enumerate(clients.tolist()):
        labels, people = truth.client_images(client).y, truth.client_rows(client)
        found.test(client, people, people[right[row][labels]])
    passed = [
        float((counts * (is_right(np.roll(claimed, by, axis=0), counts) & small)).sum())
        for by in range(1, len(clients))
    ]
    if passed:
        found.luck(float(np.mean(passed)), int(counts.sum()))
    return found.people()


def is_exact(claimed: Claimed, counts: Counts) -> NDArray[np.bool_]:
    """A claim is how many examples of each class a client holds, [k, C]."""
    return np.asarray(claimed == counts)


def is_held(claimed: Claimed, counts: Counts) -> NDArray[np.bool_]:
    """A claim is which classes a client holds, [k, C]; that it holds one tells of whoever stands in it."""
    return np.asarray(claimed & (counts > 0))


def is_whole(claimed: Claimed, counts: Counts) -> NDArray[np.bool_]:
    """A claim is how many examples a client holds, [k]: a fact about its people where it holds few."""
    total = counts.sum(axis=1)
    return np.asarray(((claimed == total) & (total < SMALL))[:, None] & (counts > 0))


def is_largest(claimed: Claimed, counts: Counts) -> NDArray[np.bool_]:
    """A claim is the class that a client holds most of, [k]."""
    classes = np.arange(counts.shape[1])
    return np.asarray((claimed == counts.argmax(axis=1))[:, None] & (claimed[:, None] == classes))


def choose_remedy(kinds: Collection[str], otherwise: str) -> str:
    """What to do about labels in messages of these kinds; no sum hides one that stands beside its example."""
    return KEEP_LABELS if kinds and set(kinds) <= BY_EXAMPLE else otherwise
