"""Last step of the wire: a message is counted, and kept where the config says so."""

from collections.abc import Iterable

from fedaudit.fl.artifact import SERVER, Channel, Party, Role, Route
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.recording.sizes import message_bytes
from fedaudit.fl.wire.protection import Message
from fedaudit.fl.wire.sums import Sums


class Records:
    """What one run keeps of its messages; without a `recorder` only their bytes."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._bytes = dict.fromkeys(Channel, 0)
        self.sums = Sums()  # uploads of the round that the server reads summed
        self._first: tuple[Route, Message] | None = None  # the first of them, unwritten while it is the only one

    def keep(self, route: Route, message: Message, copies: int = 1) -> None:
        """Record a message; `copies` is the number of receivers of a broadcast."""
        self._bytes[route.channel] += copies * message_bytes(message)
        self._write(route, message, copies)

    def keep_summed(self, route: Route, message: Message) -> None:
        """Record an upload of which the server reads a sum: who reads it shows when another comes, or none."""
        self._bytes[route.channel] += message_bytes(message)
        self.sums.add(message)
        if self.sums.messages == 1:
            self._first = (route, message)
            return
        if self._first is not None:
            self._write(*self._first)
            self._first = None
        self._write(route, message)

    def note(self, route: Route, message: Message) -> None:
        """Record what the server sees of a client without any bytes of it."""
        self._write(route, message)

    def note_pooling(self, clients: Iterable[int]) -> None:
        """Note that these clients' examples were brought to one place and trained on there, with nothing sent."""
        if self._recorder is not None:
            self._recorder.provenance.note_pooling(clients)

    def note_restart(self) -> None:
        """Note that the shared model begins again from its first weights: nothing that was heard is in it."""
        if self._recorder is not None:
            self._recorder.provenance.note_restart()

    def mark_milestone(self, round: int) -> None:
        """Keep what follows in this round where only last rounds are kept: it is the last of its kind, or the
        first, before anything is trained."""
        if self._recorder is not None:
            self._recorder.milestones.add(round)

    def end_round(self, round: int) -> dict[Channel, int]:
        """Close a round; returns its bytes by channel."""
        self._record_sum(round)
        if self._recorder is not None:
            self._recorder.end_round(round)
        sent, self._bytes = self._bytes, dict.fromkeys(Channel, 0)
        return sent

    def _record_sum(self, round: int) -> None:
        """What secure aggregation left the server: the sum; of one upload, that upload itself."""
        if not self.sums.messages:
            return
        server = (SERVER.role.value,)
        route = Route(round, Channel.UPLINK, Party(Role.CLIENT), server, server)
        message: Message = {Kind.AGGREGATE: self.sums.value()}
        if self._first is not None:
            hidden, message = self._first
            route = hidden._replace(seen_by=server)
        self._write(route, tap.current().carry(round, route.channel, route.sender, server, message))
        self.sums, self._first = Sums(), None

    def _write(self, route: Route, message: Message, copies: int = 1) -> None:
        if self._recorder is not None:
            self._recorder.message(route, message, copies)
