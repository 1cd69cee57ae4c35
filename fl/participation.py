"""The contract of availability: who the server asks in a round, and who answers.

A client that does not answer neither trains nor uploads. That is not the server's choice.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fl.plugin import Plugin
from fl.streams import Streams


@dataclass(frozen=True)
class Participation:
    """Clients asked (A_t) and those that will answer; both in ascending order."""

    asked: tuple[int, ...]
    answering: tuple[int, ...]


class Availability(Plugin):
    """Subclasses write draw(); methods.md section 11 has the models.

    Draws come from streams.numpy("participation", round, attempt) only, so that every compared
    method meets the same clients. `attempt` counts redraws of an empty round (Z1).
    """

    title: str

    @abstractmethod
    def draw(
        self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0
    ) -> Participation:
        """Who takes part among `candidates` (ascending client numbers)."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the report."""
