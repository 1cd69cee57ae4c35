"""Holders: which clients train on which record.

A record is what an example contains, whatever row it stands in: equal examples are one record, at one client or
at several. Adding or removing it changes the data of all of its holders at once, so a bound that speaks of one
record composes what all of them released (audit/accounting/units.py).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fedaudit.audit.case.case import Split
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.population import content

Held: TypeAlias = Mapping[int, tuple[int, ...]]  # client -> rows of data.train


def holders(examples: Split, data: Data) -> dict[bytes, Held]:
    """Find the clients that train on each record, and the rows in which they have it.

    Returns
    -------
    dict
        Digest of the record's content -> client -> its rows of `case.data.train`, ascending; more than one where
        a client holds copies. Clients of whom nobody told what they hold do not appear.
    """
    digests: dict[int, bytes] = {}
    held: dict[bytes, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for client, rows in sorted(examples.parts.items()):
        for row in map(int, np.sort(rows)):
            if row not in digests:
                digests[row] = content(data.train.x[row])
            held[digests[row]][client].append(row)
    return {digest: {k: tuple(rows) for k, rows in by.items()} for digest, by in held.items()}


def find_overlaps(held: Mapping[bytes, Held]) -> frozenset[frozenset[tuple[int, int]]]:
    """Find who holds a record that exists more than once: groups of (client, copies), each group once."""
    groups = (frozenset((k, len(rows)) for k, rows in by.items()) for by in held.values())
    return frozenset(g for g in groups if sum(copies for _, copies in g) > 1)


def find_persons(examples: Split, data: Data) -> frozenset[frozenset[tuple[int, int]]]:
    """Find who trains on each named person's records: groups of (client, records), each group once."""
    if data.train.owner is None:
        return frozenset()
    held: dict[int, Counter[int]] = defaultdict(Counter)
    for client, rows in examples.parts.items():
        for person in data.train.owner[rows].tolist():
            held[person][client] += 1
    return frozenset(frozenset(by.items()) for by in held.values())


def list_unknown(simulated: bool, clients: int, examples: Split) -> list[int]:
    """List the clients of whom nobody told which records they hold; a simulation knows it of all."""
    return [] if simulated else [k for k in range(clients) if k not in examples.parts]
