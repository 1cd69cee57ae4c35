"""The simulated clock of an asynchronous round: who is in flight, who answers next, who starts then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedaudit.fl.runtime.tree import Tree


@dataclass(frozen=True)
class Arrival:
    """An answer: whose, to which version of the model, when, and whether it was lost on the way."""

    client: int
    version: int
    time: float
    lost: bool


class Clock:
    """Runs tasks by their due times; a freed place goes to the next client that waits.

    `flight` maps a client's number, as text, to its {"version", "due"}: it is part of the server's
    state, and checkpoints hold it.
    """

    def __init__(
        self,
        now: float,
        flight: Mapping[str, Tree],
        *,
        version: int,
        places: int,
        waiting: Sequence[int],
        duration: Callable[[int], float],
        loses: Callable[[int, int], bool],
    ) -> None:
        self.now, self.flight = now, dict(flight)
        self._version, self._places, self._waiting = version, places, list(waiting)
        self._duration, self._loses = duration, loses
        self._started: list[int] = []
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self.flight) < self._places:
            k = self._waiting.pop(0)
            due = self.now + self._duration(k)
            self.flight[str(k)] = {"version": self._version, "due": due}
            self._started.append(k)

    def take_started(self) -> list[int]:
        """Clients started since the last call, ascending."""
        taken, self._started = sorted(self._started), []
        return taken

    def soonest(self) -> list[tuple[int, int]]:
        """(client, version) of everybody in flight, the first to answer first."""
        order = sorted(self.flight, key=lambda k: (self.flight[k]["due"], int(k)))
        return [(int(k), self.flight[k]["version"]) for k in order]

    def next(self, count: int) -> list[Arrival]:
        """The next arrivals, until `count` of them are heard or nobody is left in flight."""
        arrivals: list[Arrival] = []
        while count > 0 and self.flight:
            k, version = self.soonest()[0]
            self.now = self.flight.pop(str(k))["due"]
            arrivals.append(Arrival(k, version, self.now, self._loses(k, version)))
            count -= not arrivals[-1].lost
            self._fill()
        return arrivals
