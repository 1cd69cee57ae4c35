"""From facts about clients to people, who stand in a small group about which a claim is right, and to clients.

A group is one class of one client. What is known of it tells of its people only where they are fewer than SMALL;
so everybody is tested, and only they can be hit. Of a client all that is stated must be right. Luck is what the
same claims hit as claims about other clients: what is right of everybody is luck.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.people import SMALL, PeopleCount, Share
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm

Counts = NDArray[np.int64]
Claimed = NDArray[Any]  # [k, ...]
Mask = NDArray[np.bool_]
# kinds in which a label stands beside the numbers of each example
BY_EXAMPLE = frozenset({Kind.FEATURES, Kind.SMASHED})
KEEP_LABELS = (
    "keep labels at the clients and compute the loss there (split_u_shape), or choose a method that sends "
    "nothing of single examples"
)
KNOWN = f"in a group of fewer than {SMALL} people, of which {{}}"
SIZE_KNOWN, CLASS_KNOWN = "the size is known", "it is known that the client holds some"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What is claimed of clients, and when it is right: of claims [k, ...] and how many clients hold [k, C]."""

    of_group: str  # what is known of a group then, in words
    of_client: str  # what is a hit of a client, in words
    groups: Callable[[Claimed, Counts], Mask]  # of which classes it is right, [k, C]
    clients: Callable[[Claimed, Counts], Mask]  # of which clients all of it is, [k]


def count_each_kind(claim: Claim, claimed: Claimed, fact: Fact, truth: Truth) -> list[PeopleCount]:
    """Whom claims tell of that were read from messages of several kinds; `claim` has client and kind [k]."""
    found = list[PeopleCount]()
    for kind in dict.fromkeys(claim["kind"].tolist()):
        rows = claim["kind"] == kind
        found += count_facts(claim["client"][rows], claimed[rows], fact, truth, Kind(kind))
    return found


def average_rounds(claim: Claim, claimed: Claimed) -> tuple[Claim, Claimed]:
    """A row for each client and kind, in order: what its messages of all rounds say on average, rounded.

    `claim` has client and kind [k]. Of two messages that contradict each other nothing is held.
    """
    rows: dict[tuple[int, str], list[int]] = {}
    for row, pair in enumerate(zip(claim["client"].tolist(), claim["kind"].tolist(), strict=True)):
        rows.setdefault(pair, []).append(row)
    said = np.array([np.rint(claimed[own].mean(axis=0)) for own in rows.values()], claimed.dtype)
    said = said.reshape(-1, *claimed.shape[1:])
    return {"client": np.array([k for k, _ in rows]), "kind": np.array([kind for _, kind in rows])}, said


def count_held_by_all(artifact: str, held: Mask, truth: Truth, kind: Kind) -> list[PeopleCount]:
    """Whom it tells of that somebody behind a message of many holds these classes [C]: who stands in a small one.

    Whoever saw no message would say that each class is held, and is as often right: so all of it is luck.
    """
    found, lucky, tested = CountedPeople(KNOWN.format(HELD.of_group), Harm.ATTRIBUTE, kind), 0, 0
    for label, is_held in enumerate(held.tolist()):
        people = truth.people(artifact, label)
        many = sum(map(len, people.values()))
        small = 0 < many < SMALL
        for client, rows in people.items():
            found.test(client, rows, rows if small and is_held else [])
        lucky, tested = lucky + many * small, tested + many
    found.luck(lucky, tested)
    return found.people(truth)


def count_facts(
    clients: Counts, claimed: Claimed, fact: Fact, truth: Truth, kind: Kind | None = None
) -> list[PeopleCount]:
    """Of which people and of which clients claims are right, one claim a row.

    Parameters
    ----------
    kind : of the messages that were read, where the attack reads several.
    """
    alone = np.flatnonzero(clients != SEVERAL)  # what holds of a sum holds of a larger group
    if not len(alone):
        return []
    clients, claimed = clients[alone], claimed[alone]
    return [
        *count_known(clients, claimed, fact, truth, kind),
        *count_clients(clients, claimed, fact, truth, kind),
    ]


def count_known(
    clients: Counts, claimed: Claimed, fact: Fact, truth: Truth, kind: Kind | None = None
) -> list[PeopleCount]:
    """Whom claims about clients tell of: who stands in a small group of which one is right."""
    counts = _count_labels(clients, truth)
    small = (counts > 0) & (counts < SMALL)
    right = fact.groups(claimed, counts) & small
    found = CountedPeople(KNOWN.format(fact.of_group), Harm.ATTRIBUTE, kind)
    for row, client in enumerate(clients.tolist()):
        labels, people = truth.client_examples(client).y, truth.client_rows(client)
        found.test(client, people, people[right[row][labels]])
    passed = [
        float((counts * (fact.groups(np.roll(claimed, by, axis=0), counts) & small)).sum())
        for by in range(1, len(clients))
    ]
    if passed:
        found.luck(float(np.mean(passed)), int(counts.sum()))
    return found.people(truth)


def count_clients(
    clients: Counts, claimed: Claimed, fact: Fact, truth: Truth, kind: Kind | None = None
) -> list[PeopleCount]:
    """Of which clients all that a claim states is right; each client is a row, its own number.

    Luck is of clients whose claims are held against all other clients: of one alone there is none.
    """
    names = np.unique(clients)
    counts = _count_labels(names, truth)
    # whose claims [k] are right of whom [names]; of several about one client one is enough
    right = np.stack([fact.clients(claimed, np.tile(of, (len(claimed), 1))) for of in counts], axis=1)
    right = np.stack([right[clients == name].any(axis=0) for name in names])
    found, others = CountedPeople(fact.of_client, Harm.CLIENT_FACT, kind), len(names) - 1
    for i, name in enumerate(names.tolist()):
        found.test(name, [name], [name] if right[i, i] else [])
    if others:
        lucky = right.sum(axis=1) - np.diag(right)
        luck = Share.join_people(Share(hits=float(n), trials=others) for n in lucky)
        found.luck(luck.hits, luck.trials)
    return found.people(truth)


def _count_labels(clients: Counts, truth: Truth) -> Counts:
    return np.stack([truth.label_counts(int(k)) for k in clients])


def _name_largest(claimed: Claimed, counts: Counts) -> Mask:
    classes = np.arange(counts.shape[1])
    return np.asarray((claimed == counts.argmax(axis=1))[:, None] & (claimed[:, None] == classes))


def _name_few(claimed: Claimed, counts: Counts) -> Mask:
    total = counts.sum(axis=1)
    return np.asarray(((claimed == total) & (total < SMALL))[:, None] & (counts > 0))


COUNTED = Fact(  # how many examples of each class a client holds, [k, C]
    of_group=SIZE_KNOWN,
    of_client="how many examples of each class it holds is known",
    groups=lambda claimed, counts: np.asarray(claimed == counts),
    clients=lambda claimed, counts: np.asarray((claimed == counts).all(axis=1)),
)
HELD = Fact(  # which classes a client holds, [k, C]; that it holds one tells of whoever stands in it
    of_group=CLASS_KNOWN,
    of_client="which classes it holds, and which not, is known",
    groups=lambda claimed, counts: np.asarray(claimed & (counts > 0)),
    clients=lambda claimed, counts: np.asarray((claimed == (counts > 0)).all(axis=1)),
)
SIZE = Fact(  # how many examples a client holds, [k]: a fact about its people where it holds few
    of_group=SIZE_KNOWN,
    of_client="how many examples it holds is known",
    groups=_name_few,
    clients=lambda claimed, counts: np.asarray(claimed == counts.sum(axis=1)),
)
LARGEST = Fact(  # the class that a client holds most of, [k]
    of_group=CLASS_KNOWN,
    of_client="the class that it holds most of is known",
    groups=_name_largest,
    clients=lambda claimed, counts: np.asarray(claimed == counts.argmax(axis=1)),
)


def choose_remedy(kinds: Collection[str], otherwise: str) -> str:
    """What to do about labels in messages of these kinds; no sum hides one that stands beside its example."""
    return KEEP_LABELS if kinds and set(kinds) <= BY_EXAMPLE else otherwise
