"""Who holds which images: clients, the attacker's auxiliary data, and a reference nobody ever sees.

The three pools and the test set are pairwise disjoint, by content: exact duplicates are dropped
first, because Fashion-MNIST and CIFAR contain some and a duplicate would make a held-out image a
training image.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition, histogram
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Population:
    """`parts`, `own` and the three held-out pools index into data.train and are pairwise disjoint."""

    data: Data
    parts: Sequence[Index]
    auxiliary: Index
    reference: Index
    server: Index  # a small set of the server's own, for methods that train there
    own: Sequence[Index]  # of each client, examples of its own that it does not train on

    @property
    def counts(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """[clients, groups] n_{k,c}; one group where labels make none."""
        return histogram(self.data.group(self.data.train), self.parts, max(1, len(self.data.groups)))


def populate(
    data: Data,
    partition: Partition,
    clients: int,
    streams: Streams,
    *,
    auxiliary: float = 0.0,
    reference: float = 0.0,
    server: float = 0.0,
    own: float = 0.0,
) -> Population:
    """Hold out fractions of the training set, split the rest among the clients.

    Where examples have natural owners, whole owners are held out. `own` is the share of each client's examples,
    evenly of its classes, that it keeps and does not train on: what one person wrote or photographed looks alike,
    and only such examples tell that from having been trained on. Owners of planted secrets are never held out,
    since a secret that nobody trains on shows nothing. Raises UserError where nothing is left for the clients.
    """
    if auxiliary + reference + server >= 1:
        raise UserError(
            f"federation.holdout: auxiliary {auxiliary:g} + reference {reference:g} + server {server:g} "
            "leave no data for the clients",
            hint="their sum must stay below 1",
        )
    if partition.by_group and not data.groups:
        raise UserError(
            f"{partition.title} deals examples out by groups of labels, and {data.task!r} has none",
            hint="partition: iid, quantity or natural",
            key="federation.partition",
        )
    rng = streams.numpy("holdout")
    unique = _drop_duplicates(data)
    owner = data.train.owner
    drawn = unique if owner is None else np.unique(owner[unique])
    planted = _find_planted(data)
    if owner is not None:
        drawn = drawn[~np.isin(drawn, owner[planted])]
    drawn = rng.permutation(drawn)
    cuts = np.round(np.cumsum([auxiliary, reference, server]) * len(drawn)).astype(int)
    pools = [np.sort(g) for g in np.split(drawn, cuts)]
    if owner is not None:
        pools[-1] = np.union1d(pools[-1], owner[planted])
        pools = [unique[np.isin(owner[unique], g)] for g in pools]
    aux, ref, spare, rest = pools
    groups = data.group(data.train)
    labels = OwnedLabels(groups[rest], max(1, len(data.groups)), None if owner is None else owner[rest])
    split = partition.split(labels, clients, streams.numpy("partition"))
    parts, kept = [rest[i] for i in split], [rest[:0] for _ in split]
    if own:
        halves = [_hold_out(part, groups, own, streams.numpy("own", k)) for k, part in enumerate(parts)]
        kept = [left[~planted[left]] for _, left in halves]
        parts = [part[~np.isin(part, left)] for part, left in zip(parts, kept, strict=True)]
    return Population(data=data, parts=parts, auxiliary=aux, reference=ref, server=spare, own=kept)


def _hold_out(part: Index, labels: Index, share: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """One client's examples to train on, and a share of them to leave out: every tenth, say, of each class."""
    order = rng.permutation(len(part))
    order = order[np.argsort(labels[part[order]], kind="stable")]
    out = np.zeros(len(part), bool)
    out[order[np.diff(np.floor(np.arange(len(part) + 1) * share + 1e-9)) > 0]] = True
    return part[~out], part[out]


def _find_planted(data: Data) -> NDArray[np.bool_]:
    """Which training examples are of an owner in whose texts a secret was planted."""
    if data.train.owner is None:
        return np.zeros(len(data.train.y), bool)
    return np.isin(data.train.owner, [c.owner for c in data.canaries if c.copies])


def _drop_duplicates(data: Data) -> Index:
    """Indices of training examples that appear neither earlier nor in the test set."""
    sums = np.concatenate([_sum_bits(data.test.x), _sum_bits(data.train.x)])
    _, which, counts = np.unique(sums, return_inverse=True, return_counts=True)
    in_test, in_train = np.split(counts[which] > 1, [len(data.test)])  # of the others no digest is needed
    seen, keep = {content(x) for x in data.test.x[in_test]}, ~in_train
    for i in np.flatnonzero(in_train):
        digest = content(data.train.x[i])
        keep[i] = digest not in seen
        seen.add(digest)
    return np.flatnonzero(keep)


def _sum_bits(x: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each example, equal for duplicates and different for nearly all others."""
    rows = np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:]))
    sums: NDArray[np.uint64] = rows.view(np.uint32).sum(1, dtype=np.uint64)
    return sums


def content(x: np.ndarray) -> bytes:
    """A digest of one example, equal for duplicates."""
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=16).digest()
