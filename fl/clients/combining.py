"""What a server makes of a round's uploads, and behind secure aggregation of their sums alone.

That a server can work from sums is asked of its code in every round. What goes on is made of uploads among which
the sums are dealt out (fl/wire/sums.py). A copy of the method, which is then dropped, makes its state of what
clients sent. Where the two differ, the method reads more than sums, and the run is refused.
"""

from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Averages
from fedaudit.fl.clients.delivery import Deliveries, Delivery, read_sample_count
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import SEPARATOR, Tree, leaves
from fedaudit.fl.wire.check import Declared
from fedaudit.fl.wire.wire import Wire

# How far apart two values may lie that rounding alone tells apart: of what an entry changed, and of itself
ROUNDING, FLOAT = 1e-4, 1e-6


class Combining(Protocol):
    """The part of a method's server that reads uploads."""

    @property
    def card(self) -> Declared: ...

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree: ...


Server = TypeVar("Server", bound=Combining)


def choose_reader(server: Server, wire: Wire) -> Server:
    """Who may see a round's single uploads: the server, or a copy of it where sums alone are to reach it.

    What is done with a copy leaves no trace in the server; what cannot be copied they share.
    """
    if not wire.chain.hides_single_uploads:
        return server
    try:
        return deepcopy(server)
    except Exception:  # other people's code  # noqa: BLE001
        return copy(server)


def combine_arrivals(
    server: Combining,
    reader: Combining,
    state: Tree,
    arriving: Iterator[Delivery],
    averages: Averages,
    wire: Wire,
) -> tuple[Tree, Averages]:
    """The server's new state from what arrived, all of which is taken in, and the averages that it is made with.

    `reader` is who may see single uploads, see choose_reader.
    Raises UserError where sums alone are to reach a server that makes something else of them.
    """
    if not wire.chain.hides_single_uploads:
        new = server.combine(state, Deliveries(arriving, averages), averages.round)
        for _ in arriving:  # a server that stopped early must not leave answers in the pipes
            pass
        return new, averages
    heard, kinds = list[Delivery](), dict[Kind, None]()

    def come() -> Iterator[Delivery]:
        for delivery in arriving:
            heard.append(replace(delivery, message={}))
            kinds.update(dict.fromkeys(delivery.message))
            yield delivery

    coming = come()
    asked = Deliveries(coming, averages, is_summed=True)
    single = reader.combine(deepcopy(state), asked, averages.round)
    for _ in coming:
        pass
    summed, dealt = averages.begin_anew(), wire.deal_sums(averages.round, len(heard))
    deliveries = (
        replace(d, message=m, examples=read_sample_count(m, 1)) for d, m in zip(heard, dealt, strict=True)
    )
    new = server.combine(state, Deliveries(deliveries, summed, is_summed=True), averages.round)
    if entry := find_difference(state, single, new):
        raise UserError(
            f"secure aggregation cannot protect {server.card.title}: in round {averages.round} its server makes "
            f"another {entry!r} of single clients' uploads ({', '.join(kinds)}) than of their sums, so it reads "
            "more than sums",
            hint="leave secure_aggregation out, or have the server work on sums and means of uploads",
        )
    return new, summed


def find_difference(before: Tree, one: Tree, other: Tree) -> str:
    """The first entry of a server's state in which two of them differ by more than rounding; empty for none."""
    old, first, second = (dict(leaves(tree)) for tree in (before, one, other))
    for path in dict.fromkeys((*first, *second)):
        if path not in first or path not in second or not _is_close(old.get(path), first[path], second[path]):
            return path.replace(SEPARATOR, "/")
    return ""


def _is_close(before: Any, one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        before = torch.tensor(before) if isinstance(before, float) else None
        return _is_close(before, torch.tensor(one), torch.tensor(other))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other)
    if one.shape != other.shape or not one.is_floating_point():
        return torch.equal(one, other)
    a, b = (torch.nan_to_num(v.detach().cpu().double()) for v in (one, other))
    known = isinstance(before, Tensor) and before.shape == one.shape
    moved = a - before.detach().cpu().double() if known else a
    largest = ROUNDING * float(moved.norm()) + FLOAT * float(a.norm())
    return float((a - b).norm()) <= largest
