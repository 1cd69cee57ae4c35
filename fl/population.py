"""Who holds which images: clients, the attacker's auxiliary data, and a reference nobody ever sees.

The three pools and the test set are pairwise disjoint, by content: exact duplicates are dropped
first, because Fashion-MNIST and CIFAR contain some and a duplicate would make a held-out image a
training image.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl.dataset import Data
from fl.errors import UserError
from fl.partition import Index, Partition, histogram
from fl.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Population:
    """`parts` and the three held-out pools index into data.train and are pairwise disjoint."""

    data: Data
    parts: Sequence[Index]
    auxiliary: Index
    reference: Index
    server: Index  # a small set of the server's own, for methods that train there

    @property
    def counts(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """[clients, classes] n_{k,c}."""
        return histogram(self.data.train.y, self.parts, len(self.data.classes))


def populate(
    data: Data,
    partition: Partition,
    clients: int,
    streams: Streams,
    *,
    auxiliary: float = 0.0,
    reference: float = 0.0,
    server: float = 0.0,
) -> Population:
    """Hold out fractions of the training set, split the rest among the clients.

    Where examples have natural owners, whole owners are held out. Raises UserError where nothing is
    left for the clients.
    """
    if auxiliary + reference + server >= 1:
        raise UserError(
            f"federation.holdout: auxiliary {auxiliary:g} + reference {reference:g} + server {server:g} "
            "leave no data for the clients",
            hint="their sum must stay below 1",
        )
    rng = streams.numpy("holdout")
    unique = _without_duplicates(data)
    owner = data.train.owner
    groups = unique if owner is None else np.unique(owner[unique])
    groups = rng.permutation(groups)
    cuts = np.round(np.cumsum([auxiliary, reference, server]) * len(groups)).astype(int)
    pools = [np.sort(g) for g in np.split(groups, cuts)]
    if owner is not None:
        pools = [unique[np.isin(owner[unique], g)] for g in pools]
    aux, ref, own, rest = pools
    split = partition.split(
        data.train.y[rest],
        len(data.classes),
        clients,
        streams.numpy("partition"),
        None if owner is None else owner[rest],
    )
    parts = [rest[i] for i in split]
    return Population(data=data, parts=parts, auxiliary=aux, reference=ref, server=own)


def _without_duplicates(data: Data) -> Index:
    """Indices of training examples that appear neither earlier nor in the test set."""
    seen = {_digest(x) for x in data.test.x}
    keep = []
    for i, x in enumerate(data.train.x):
        digest = _digest(x)
        if digest not in seen:
            seen.add(digest)
            keep.append(i)
    return np.array(keep, dtype=np.int64)


def _digest(x: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=16).digest()
