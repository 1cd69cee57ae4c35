"""Batches of a client of split learning: drawn one at a time, since the client waits for the server after each.

They are those of local training (fl/training/local.py). A visit holds the state of the draws, so that a client
goes on where it was; `iterate_batches` draws the same once more, for whoever grades what was sent.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.batches import has_batch_statistics, split_into_batches
from fedaudit.fl.training.local import crop_flip


class Drawing(Protocol):
    """Settings of how batches are drawn."""

    @property
    def batch_size(self) -> int: ...

    @property
    def false_batches(self) -> float: ...


def draw_batch(client: Client, visit: Tree, config: Drawing, epochs: int) -> bool:
    """Take the next batch into the visit; False after the last one of so many passes."""
    order = torch.Generator()
    order.set_state(visit["draws"])
    if visit["place"] >= len(visit["rows"]):
        if visit["epoch"] == epochs:
            return False
        visit |= {"rows": torch.randperm(len(client.y), generator=order), "place": 0, "epoch": visit["epoch"] + 1}
    left = visit["rows"][visit["place"] :]
    ahead = min(len(left), 2 * config.batch_size)  # what lies further ahead does not change the next batch
    size, *_ = split_into_batches(ahead, config.batch_size, joins=has_batch_statistics(client.net))
    rows = left[:size].to(client.y.device)
    x = client.x[rows]
    x = crop_flip(x, order) if client.augment == "crop_flip" else x
    place = visit["place"] + len(rows)
    visit |= {"x": x.cpu(), "y": client.y[rows].cpu(), "place": place, "draws": order.get_state()}
    if config.false_batches:
        _falsify(visit, config.false_batches, client.classes)
    return True


def _falsify(visit: Tree, share: float, classes: int) -> None:
    """Give a batch false labels, as often as `share` says."""
    coins = torch.Generator()
    coins.set_state(visit["coins"])
    is_false = float(torch.rand((), generator=coins)) < share
    if is_false:
        moved = torch.randint(1, classes, visit["y"].shape, generator=coins)
        visit["y"] = (visit["y"] + moved) % classes
    visit |= {"is_false": is_false, "coins": coins.get_state()}


def iterate_batches(streams: Streams, round: int, client: int, sizes: list[int], epochs: int) -> Iterator[Tensor]:
    """The places of the examples of each batch that a client sends in a round, in their order.

    `sizes` are those of an epoch (`split_into_batches`). Of clients whose images are not augmented, which takes
    draws of its own.
    """
    order = streams.torch("batches", round, client)
    for _ in range(epochs):
        yield from torch.split(torch.randperm(sum(sizes), generator=order), sizes)
