"""Who people are: of which class, and how unlike all auxiliary people of it; and which groups they stand in.

An attack that hits few of all people may hit most of a group: one class at one client, a whole class or client,
or the rarest. Each group is counted beside held-out people of the same group, tried in the place of its clients.
"""

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Truth
from fedaudit.attacks.modality.images import fingerprints, nearest
from fedaudit.attacks.people import GroupCount, Share

FEWEST = 20  # people of a class, a client, or a class of a client, from whom on they are a group
RAREST = 0.1  # of all people
Rows = NDArray[np.int64]
Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
NOBODY = -1  # class of a held-out person of whom nothing is known


class Described(NamedTuple):
    """Classes [n], and how far each is from the nearest auxiliary person of its class [n]; NaN: not known."""

    label: Rows
    rareness: Values


class LuckyTrials(NamedTuple):
    """How often held-out people would have been hit [t], each tried in the place of some clients."""

    person: Sequence[Hashable]  # fingerprints of their examples
    clients: Sequence[Collection[int]]
    luck: Sequence[Share]

    def sum_by_person(self) -> dict[Hashable, Share]:
        """Of everybody in whoever's place."""
        found: dict[Hashable, Share] = {}
        for person, luck in zip(self.person, self.luck, strict=True):
            found[person] = found.get(person, Share()) + luck
        return found


def keep_alike(lucky: LuckyTrials, truth: Truth) -> tuple[LuckyTrials, frozenset[int]]:
    """Trials of held-out people who are like the people in whose place they are tried, and the clients of these.

    Where a client's people look like nobody else's, only those that it held out itself are.
    """
    places = {k for some in lucky.clients for k in some}
    unseen = {k: found for k in places if (found := truth.unseen([k])).is_alike}
    pooled = {k for k, found in unseen.items() if found.images is truth.reference}
    own = {k: frozenset(fingerprints(unseen[k].images.x)) for k in {*unseen} - pooled}
    kept = [
        i
        for i, (person, some) in enumerate(zip(lucky.person, lucky.clients, strict=True))
        if any(k in pooled or (k in own and person in own[k]) for k in some)
    ]
    alike = LuckyTrials(
        [lucky.person[i] for i in kept], [lucky.clients[i] for i in kept], [lucky.luck[i] for i in kept]
    )
    return alike, frozenset(k for some in alike.clients for k in some) & frozenset(unseen)


class Population:
    """Everybody whom a truth knows, trained on or held out."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._clients: dict[int, tuple[dict[int, int], Described]] = {}
        self._held_out: dict[Hashable, tuple[int, float]] = {}
        self._read = set[int]()

    def describe(self, client: int, rows: Sequence[int]) -> Described:
        """Of these rows of a client."""
        if client not in self._clients:
            places = {int(row): i for i, row in enumerate(self._truth.client_rows(client))}
            self._clients[client] = places, self._describe(self._truth.client_examples(client))
        places, every = self._clients[client]
        chosen = np.array([places[row] for row in rows], np.int64)
        return Described(every.label[chosen], every.rareness[chosen])

    def describe_held_out(self, marks: Sequence[Hashable], clients: Sequence[int]) -> Described:
        """Of held-out people, by fingerprints of their examples, who are tried in the place of these clients."""
        self._read_held_out(-1, self._truth.reference)
        for client in clients:
            unseen = self._truth.unseen([client]).images
            if unseen is not self._truth.reference:
                self._read_held_out(client, unseen)
        found = [self._held_out.get(mark, (NOBODY, np.nan)) for mark in marks]
        return Described(
            np.array([label for label, _ in found], np.int64), np.array([far for _, far in found], np.float64)
        )

    def _read_held_out(self, whose: int, images: Examples) -> None:
        if whose not in self._read:
            self._read.add(whose)
            of = self._describe(images)
            pairs = zip(of.label.tolist(), of.rareness.tolist(), strict=True)
            self._held_out.update(zip(fingerprints(images.x), pairs, strict=True))

    def _describe(self, images: Examples) -> Described:
        auxiliary, far = self._truth.auxiliary, np.full(len(images), np.nan)
        if np.asarray(images.x).dtype.kind == "f" and len(auxiliary):  # texts have no distance
            for label in np.unique(images.y).tolist():
                own, beside = images.y == label, auxiliary.of_class(label)
                far[own] = nearest(images.x[own], beside).distance if len(beside) else np.inf
        return Described(images.y, far)


@lru_cache(maxsize=1)
def _describe_once(truth: Hashable) -> Population:
    return Population(cast(Truth, truth))


def count_groups(
    tested: Mapping[int, Sequence[int]], hit: Mapping[int, Sequence[int]], lucky: LuckyTrials, truth: Truth
) -> tuple[GroupCount, ...]:
    """Those tested and hit of every group, beside the luck of held-out people of the same group.

    Left out: everybody, and whoever were counted as another group already.
    """
    population, rows = (
        _describe_once(cast(Hashable, truth)),
        {k: list(some) for k, some in tested.items() if some},
    )
    each = [population.describe(k, some) for k, some in rows.items()]
    people = Described(*(np.concatenate(column) for column in zip(*each, strict=True)))
    clients = np.repeat(list(rows), [len(some) for some in rows.values()])
    is_hit = np.concatenate([np.isin(some, list(hit.get(k, ()))) for k, some in rows.items()])
    trials, found = _Trials(lucky, population, list(rows)), list[GroupCount]()
    seen = {np.packbits(np.ones(len(clients), bool)).tobytes()}
    sort = "class" if truth.auxiliary.labels is None else "group"  # of labels that are no classes
    for group in _list_groups(clients, people, sort):
        key = np.packbits(group.people).tobytes()
        if key not in seen:
            seen.add(key)
            found.append(
                GroupCount(
                    name=group.name,
                    tested=int(group.people.sum()),
                    hits=int(is_hit[group.people].sum()),
                    luck=trials.join(np.unique(clients[group.people]).tolist(), group.label, group.least),
                )
            )
    return tuple(found)


class _Group(NamedTuple):
    """Which people [n] stand in it, and what held-out people of it have in common."""

    name: str
    people: Mask
    label: int | None = None
    least: float | None = None  # distance from auxiliary people


def _list_groups(clients: Rows, people: Described, sort: str) -> Iterator[_Group]:
    """Of at least FEWEST people: each class, each client, each class of each client; and the rarest."""
    classes = _list_frequent(people.label)
    yield from (_Group(f"{sort} {c}", people.label == c, c) for c in classes)
    for k in _list_frequent(clients):
        own = clients == k
        yield _Group(f"client {k}", own)
        for c in _list_frequent(people.label[own]):
            yield _Group(f"{sort} {c} of client {k}", own & (people.label == c), c)
    if np.isfinite(people.rareness).any():
        least = np.sort(people.rareness)[-math.ceil(RAREST * len(clients))]
        yield _Group("rarest tenth", people.rareness >= least, least=float(least))


def _list_frequent(values: Rows) -> list[int]:
    each, counts = np.unique(values, return_counts=True)
    found: list[int] = each[counts >= FEWEST].tolist()
    return found


class _Trials:
    """Trials of held-out people, to choose from by client, class and rareness."""

    def __init__(self, lucky: LuckyTrials, population: Population, clients: Sequence[int]) -> None:
        self._luck, self._people = lucky.luck, population.describe_held_out(lucky.person, clients)
        number: dict[Hashable, int] = {}
        self._person = np.array([number.setdefault(p, len(number)) for p in lucky.person], np.int64)
        places: dict[int, list[int]] = {}
        for trial, some in enumerate(lucky.clients):
            for k in some:
                places.setdefault(k, []).append(trial)
        self._places = {k: np.array(some, np.int64) for k, some in places.items()}

    def join(self, clients: Sequence[int], label: int | None, least: float | None) -> Share:
        """In the place of any of these clients, person by person."""
        none = np.zeros(0, np.int64)
        chosen = np.unique(np.concatenate([none, *(self._places.get(k, none) for k in clients)]))
        if label is not None:
            chosen = chosen[self._people.label[chosen] == label]
        if least is not None:
            chosen = chosen[self._people.rareness[chosen] >= least]
        each: dict[int, Share] = {}
        for person, trial in zip(self._person[chosen].tolist(), chosen.tolist(), strict=True):
            each[person] = each.get(person, Share()) + self._luck[trial]
        return Share.join_people(each.values())
