"""The contract of availability: who the server asks in a round, and who answers.

A client that does not answer neither trains nor uploads. That is not the server's choice.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fl.ledger import Sampling
from fl.plugin import Plugin
from fl.streams import Streams


@dataclass(frozen=True)
class Participation:
    """Clients selected (A_t) and those that will answer; both in ascending order."""

    selected: tuple[int, ...]
    answering: tuple[int, ...]


class Drawn(NamedTuple):
    """How one client's participation is decided, as the ledger records it."""

    sampling: Sampling = "none"
    rate: float = 1.0


class Availability(Plugin):
    """Subclasses write draw(); each file states its model.

    Draws come from streams.numpy("participation", round, attempt) only, so that every compared
    method meets the same clients. `attempt` counts redraws of an empty round.
    """

    title: str

    @abstractmethod
    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        """Who takes part among `candidates` (ascending client numbers)."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the report."""

    def sampling(self, client: int | None, clients: int) -> Drawn:
        """How a client of `clients` is drawn, independently in each round; None: the likeliest one.

        "unknown" where rounds depend on each other or the law is not one that accounting knows.
        """
        return Drawn("unknown", 1.0)


def drawn(availability: Availability, clients: int, empty_round: str, client: int | None) -> Drawn:
    """As above, in a federation. Drawing an empty round again is no Poisson sampling any more."""
    found = availability.sampling(client, clients)
    if found.sampling == "poisson" and found.rate == 1:
        return Drawn()
    if found.sampling == "poisson" and empty_round == "redraw":
        return Drawn("unknown", found.rate)
    return found
