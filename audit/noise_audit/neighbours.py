"""Neighbouring data: one client's replaced, one record taken away from everybody who holds it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.runtime.streams import Streams

BRIGHT = 1e3  # times an image: its gradient is longer than any clip
FEW = 2  # examples that a client is left with
MANY = 4  # times that each of a client's examples is held


@dataclass(frozen=True)
class Neighbour:
    """A federation on neighbouring data: what is changed."""

    name: str
    touched: frozenset[int] = frozenset()  # clients whose data are changed: others need not be trained again
    data: Callable[[Data], Data] = lambda data: data
    parts: Callable[[list[Index]], list[Index]] = lambda parts: parts


SAME = Neighbour("the same data")


def easy_data(rows: Mapping[int, Index]) -> Neighbour:
    """Clients whose images are all black and of one class: they learn everything at once."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        return _with_rows(data, own, np.zeros_like(data.train.x[own]), np.zeros_like(data.train.y[own]))

    return Neighbour(f"all examples of {_name_clients(rows)} black, of one class", frozenset(rows), data=change)


def hard_data(rows: Mapping[int, Index], streams: Streams) -> Neighbour:
    """Clients whose images are noise and whose labels mean nothing: they learn nothing."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        rng, x = streams.numpy("noise_audit", "hard"), data.train.x[own]
        drawn = rng.random(x.shape) if x.dtype.kind == "f" else rng.permutation(x.reshape(-1)).reshape(x.shape)
        return _with_rows(data, own, drawn.astype(x.dtype), rng.integers(0, len(data.classes), len(own)))

    return Neighbour(f"all examples of {_name_clients(rows)} noise, of any class", frozenset(rows), data=change)


def few_examples(client: int) -> Neighbour:
    """A client with a few examples only: what it sends must not tell how many it holds."""

    def change(parts: list[Index]) -> list[Index]:
        return [part[:FEW] if k == client else part for k, part in enumerate(parts)]

    return Neighbour(f"all but {FEW} examples of client {client} taken away", frozenset({client}), parts=change)


def many_examples(client: int) -> Neighbour:
    """A client that holds each of its examples many times: it is the largest and the slowest of all."""

    def change(parts: list[Index]) -> list[Index]:
        return [np.tile(part, MANY) if k == client else part for k, part in enumerate(parts)]

    return Neighbour(f"{MANY} times as many examples of client {client}", frozenset({client}), parts=change)


def fewer_examples(rows: Mapping[int, Index], labels: Index, left_out: Mapping[int, int]) -> Neighbour:
    """Clients without so many of their examples, those of their largest classes first."""
    gone = {}
    for client, own in rows.items():
        sizes = np.bincount(labels[own])
        order = sorted(own.tolist(), key=lambda row: (-sizes[labels[row]], labels[row], row))
        gone[client] = set(order[: left_out[client]])

    counts = ", ".join(str(n) for n in left_out.values())
    return _drop_rows(f"{_name_clients(rows)} without {counts} examples", gone)


def without_record(record: Sequence[tuple[int, int]]) -> Neighbour:
    """One record less with everybody who holds it: `record` are pairs of client and row of the training set."""
    held = {client: {row for c, row in record if c == client} for client, _ in record}

    return _drop_rows(f"one record less, held by {_name_clients(held)}", held)


def bright_record(record: Sequence[tuple[int, int]]) -> Neighbour:
    """A record whose gradient is longer than any clip, wherever it is held."""
    rows = np.unique([row for _, row in record])

    def change(data: Data) -> Data:
        x = data.train.x[rows]
        return _with_rows(data, rows, (1 + x) * BRIGHT if x.dtype.kind == "f" else x, data.train.y[rows])

    held = {client for client, _ in record}
    return Neighbour(f"one record of extreme values, held by {_name_clients(held)}", frozenset(held), data=change)


def other_class(record: Sequence[tuple[int, int]]) -> Neighbour:
    """A record in the place of another: of extreme values, and of another class."""
    rows = np.unique([row for _, row in record])

    def change(data: Data) -> Data:
        x = data.train.x[rows]
        y = (data.train.y[rows] + 1) % len(data.classes)
        return _with_rows(data, rows, (1 + x) * -BRIGHT if x.dtype.kind == "f" else x, y)

    held = {client for client, _ in record}
    return Neighbour(
        f"one record replaced by another, held by {_name_clients(held)}", frozenset(held), data=change
    )


def _drop_rows(name: str, gone: Mapping[int, Collection[int]]) -> Neighbour:
    """`gone`: client -> rows of the training set that it no longer holds."""

    def change(parts: list[Index]) -> list[Index]:
        return [part[~np.isin(part, list(gone[k]))] if k in gone else part for k, part in enumerate(parts)]

    return Neighbour(name, frozenset(gone), parts=change)


def _with_rows(data: Data, rows: Index, x: np.ndarray, y: np.ndarray) -> Data:
    images, labels = data.train.x.copy(), data.train.y.copy()
    images[rows], labels[rows] = x, y
    return replace(data, train=Arrays(x=images, y=labels, owner=data.train.owner))


def _name_clients(numbers: Collection[int]) -> str:
    listed = sorted(numbers)
    if len(listed) > FEW:
        return f"{len(listed)} clients"
    return f"client{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
