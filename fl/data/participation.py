"""The contract of availability: who the server asks in a round, and who answers.

A client that does not answer neither trains nor uploads. That is not the server's choice.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.ledger import Sampling
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.streams import Streams


@dataclass(frozen=True)
class Participation:
    """Clients selected (A_t) and those that will answer; both in ascending order."""

    selected: tuple[int, ...]
    answering: tuple[int, ...]


class Drawn(NamedTuple):
    """How one client's participation is decided, as the ledger records it."""

    sampling: Sampling = "none"
    rate: float = 1.0
    period: int = 1  # rounds in a row that share one draw, counted from round 0


UNKNOWN = Drawn("unknown")


class Availability(Plugin):
    """Subclasses write draw(); each file states its model.

    Draws come from streams.numpy("participation", round, attempt) only, so that every compared
    method meets the same clients. `attempt` counts redraws of an empty round.
    """

    title: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that says nothing of its sampling claims nothing, whatever it derives from."""
        super().__init_subclass__(**kwargs)
        if "sampling" not in vars(cls):
            cls.sampling = Availability.sampling  # type: ignore[method-assign]

    def among(self, count: Callable[[], NDArray[np.int64]]) -> "Availability":
        """The same among clients of whom `count` gives [clients, classes] numbers of examples.

        Raises UserError where it cannot hold among these.
        """
        return self

    @abstractmethod
    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        """Who takes part among `candidates` (ascending client numbers)."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the report."""

    def sampling(self, client: int | None, clients: int) -> Drawn:
        """How a client of `clients` is drawn, independently in each period; None: the likeliest one.

        This is a claim about privacy and is never inherited: a class that does not write it has "unknown".
        So is a law where rounds depend on each other otherwise, or that accounting does not know.
        """
        return UNKNOWN


def describe_drawing(
    availability: Availability, clients: int, empty_round: str, client: int | None, without_data: int = 0
) -> Drawn:
    """As above, in a federation of which some clients hold no data and so never answer.

    A law that draws an empty round again is another law: no coin of a client's own any more, and no
    fixed number either, unless somebody with data is always drawn, in a neighbouring federation too.
    """
    found = availability.sampling(client, clients)
    if found.rate == 1 and found.sampling in ("poisson", "none"):
        return Drawn()
    number = round(found.rate * clients)
    if empty_round == "redraw" and (found.sampling == "poisson" or number <= without_data + 1):
        return Drawn("unknown", found.rate)
    return found
