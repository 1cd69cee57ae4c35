"""Who takes part in a round, and who of them is heard in the end."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from fedaudit.fl.clients.failures import FailureConfig, RandomFaults, Turn, turn
from fedaudit.fl.data.participation import Availability, Drawn, describe_drawing
from fedaudit.fl.recording import tap
from fedaudit.fl.runtime.streams import Streams


class Participants(NamedTuple):
    """Clients of a round."""

    selected: tuple[int, ...]
    answering: tuple[int, ...]  # those with data that will train


class Attendance:
    """Draws the clients of each round of a federation of `clients`, of whom the `members` have data.

    `reply_loss` is the probability that a trained client's reply is lost.
    """

    def __init__(
        self,
        availability: Availability,
        streams: Streams,
        clients: int,
        members: Collection[int],
        *,
        empty_round: Literal["redraw", "skip"],
        failures: FailureConfig,
    ) -> None:
        self.failures = failures
        self.redraws = 0  # of the last round that was drawn
        self._availability, self._streams = availability, streams
        self._clients, self._members = clients, frozenset(members)
        self._empty_round: Literal["redraw", "skip"] = empty_round
        self._reply_loss = failures.reply_loss

    def draw(self, round: int, candidates: Sequence[int]) -> Participants:
        """Draw the round's clients. Those without data are selected and answer "no data"."""
        self.redraws = 0
        while True:
            participation = self._availability.draw(round, candidates, self._streams, self.redraws)
            answering = tuple(k for k in participation.answering if k in self._members)
            # The papers' code draws again until somebody answers. 1000 draws without anybody
            # mean that nobody ever will (p = 0, or no client has data).
            if answering or self._empty_round == "skip" or self.redraws >= 1000:
                answering = tap.current().draw(round, answering)  # whom an auditor adds is sent what others are
                selected = {*participation.selected}
                added = [k for k in answering if k not in selected]
                return Participants((*participation.selected, *added), answering)
            self.redraws += 1

    def get_law(self, client: int | None) -> Drawn:
        """Return how a client comes to take part where the method leaves it to availability."""
        without = self._clients - len(self._members)
        return describe_drawing(self._availability, self._clients, self._empty_round, client, without)

    def is_reply_lost(self, round: int, client: int) -> bool:
        """Whether the reply of a client that has trained is lost."""
        if not self._reply_loss:
            return False
        return bool(self._streams.numpy("reply_loss", round, client).random() < self._reply_loss)

    def ask(self, round: int, client: int) -> Turn:
        """Return how often a server that asks all at once asks a client in a round, and what comes of it."""
        if not self.failures.any:
            return Turn()
        return turn(client, self.failures, RandomFaults(self.failures, self._streams, round))

    def ask_all(self, round: int, answering: Iterable[int]) -> tuple[float, dict[str, Any]]:
        """Return how long the server waits for those it does not hear, and notes of the round on who failed."""
        if not self.failures.any:
            return 0.0, {}
        turns = [self.ask(round, k) for k in answering]
        waited = max((t.time for t in turns if not t.heard), default=0.0)
        events = sorted((dict(e) for t in turns for e in t.events), key=lambda e: (e["time"], e["client"]))
        return waited, {"requests": sum(t.requests for t in turns), "events": events}

    def is_heard(self, round: int, client: int) -> bool:
        """Whether a client that was asked with all others is heard in the end."""
        return self.ask(round, client).heard and not self.is_reply_lost(round, client)
