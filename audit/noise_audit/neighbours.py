"""Neighbouring data: a client's that are easy, hard, few or many, and one record less or another."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.plays.world import Neighbour
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.runtime.streams import Streams

BRIGHT = 1e3  # times an image: its gradient is longer than any clip
FEW = 2  # examples that a client is left with
COPIES = 4  # times that each of a client's examples is held
Record = Sequence[tuple[int, int]]  # its holders, and the rows of the training set in which they have it


def make_easy_data(rows: Mapping[int, Index]) -> Neighbour:
    """Clients whose images are all black and of one class: they learn everything at once."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        return _with_rows(data, own, np.zeros_like(data.train.x[own]), np.zeros_like(data.train.y[own]))

    return Neighbour(f"all examples of {_name_clients(rows)} black, of one class", frozenset(rows), data=change)


def make_hard_data(rows: Mapping[int, Index], streams: Streams) -> Neighbour:
    """Clients whose images are noise and whose labels mean nothing: they learn nothing."""

    def change(data: Data) -> Data:
        own = np.concatenate(list(rows.values()))
        rng, x = streams.numpy("noise_audit", "hard"), data.train.x[own]
        drawn = rng.random(x.shape) if x.dtype.kind == "f" else rng.permutation(x.reshape(-1)).reshape(x.shape)
        return _with_rows(data, own, drawn.astype(x.dtype), _draw_labels(data, own, rng))

    return Neighbour(f"all examples of {_name_clients(rows)} noise, of any class", frozenset(rows), data=change)


def make_borrowed_data(own: Index, client: int, others: Index) -> Neighbour:
    """A client that holds copies of what others hold: nobody's work may depend on who else has an example."""

    def change(data: Data) -> Data:
        taken = others[np.arange(len(own)) % len(others)]
        return _with_rows(data, own, data.train.x[taken], data.train.y[taken])

    return Neighbour(
        f"all examples of client {client} copies of what others hold", frozenset({client}), data=change
    )


def make_few_examples(client: int) -> Neighbour:
    """A client with a few examples only: what it sends must not tell how many it holds."""
    return _change_part(f"all but {FEW} examples of client {client} taken away", client, lambda part: part[:FEW])


def make_many_examples(client: int) -> Neighbour:
    """A client that holds each of its examples many times: it is the largest and the slowest of all."""
    name = f"{COPIES} times as many examples of client {client}"
    return _change_part(name, client, lambda part: np.tile(part, COPIES))


def _change_part(name: str, client: int, change: Callable[[Index], Index]) -> Neighbour:
    def change_one(parts: list[Index]) -> list[Index]:
        return [change(part) if k == client else part for k, part in enumerate(parts)]

    return Neighbour(name, frozenset({client}), parts=change_one)


def make_fewer_examples(rows: Mapping[int, Index], labels: Index, left_out: Mapping[int, int]) -> Neighbour:
    """Clients without so many of their examples, those of their largest classes first.

    One is left: who has none is no member any more.
    """
    gone = {}
    for client, own in rows.items():
        sizes = np.bincount(labels[own])
        order = sorted(own.tolist(), key=lambda row: (-sizes[labels[row]], labels[row], row))
        gone[client] = set(order[: min(left_out[client], len(order) - 1)])
    counts = ", ".join(str(n) for n in left_out.values())
    return _drop_rows(f"{_name_clients(rows)} without {counts} examples", gone)


def remove_record(record: Record) -> Neighbour:
    """One record less with everybody who holds it."""
    held = {client: {row for c, row in record if c == client} for client, _ in record}
    return _drop_rows(f"one record less, held by {_name_clients(held)}", held)


def move_record_last(record: Record) -> Neighbour:
    """The same examples, of which a record is the last with everybody who holds it."""
    rows = [row for _, row in record]

    def change(parts: list[Index]) -> list[Index]:
        return [np.concatenate([part[~np.isin(part, rows)], part[np.isin(part, rows)]]) for part in parts]

    held = frozenset(client for client, _ in record)
    return Neighbour(f"one record the last, held by {_name_clients(held)}", held, parts=change)


def brighten_record(record: Record) -> Neighbour:
    """A record whose gradient is longer than any clip, wherever it is held."""
    return _change_record("one record of extreme values", record, BRIGHT, 0)


def _draw_labels(data: Data, rows: Index, rng: np.random.Generator) -> NDArray[Any]:
    """Labels that mean nothing, for so many examples: any class, or those of others."""
    if data.task.has_classes or data.is_text:
        return rng.integers(0, len(data.classes), len(rows))
    return data.train.y[rng.integers(0, len(data.train), len(rows))]


def replace_record(record: Record) -> Neighbour:
    """A record in the place of another: of extreme values, and of another class."""
    return _change_record("one record replaced by another", record, -BRIGHT, 1)


def _change_record(name: str, record: Record, factor: float, shift: int) -> Neighbour:
    rows = np.unique([row for _, row in record])

    def change(data: Data) -> Data:
        x, y = data.train.x[rows], data.train.y[rows]
        y = data.task.mislabel(y, [shift - 1] * len(y), data.width) if shift else y
        return _with_rows(data, rows, (1 + x) * factor if x.dtype.kind == "f" else x, y)

    held = frozenset(client for client, _ in record)
    return Neighbour(f"{name}, held by {_name_clients(held)}", held, data=change)


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
