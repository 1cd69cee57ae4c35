"""The wire: the only path between parties.

A message passes four steps: it is checked against the method's card (check.py), the protections change it
(protect.py), its releases become lines of the ledger (account.py), and it is recorded for whoever could see it
(record.py). A method cannot forget to emit an artifact, or smuggle one out.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from fedaudit.fl.artifact import PUBLIC, SERVER, Channel, Party, Role, Route
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.recording.sizes import observation
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.account import Accounts
from fedaudit.fl.wire.check import Checks, Declared, check_protections, check_shares, is_finite, names_no_other
from fedaudit.fl.wire.protect import ProtectionChain
from fedaudit.fl.wire.protection import Message, Payload, Protection
from fedaudit.fl.wire.record import Records


class Wire:
    """Carries messages for one run. `recorder` and `ledger` may be None: nothing is kept then.

    `accounts` takes releases of a method's own mechanisms, `records` what else happens to clients' data.
    """

    def __init__(
        self,
        card: Declared,
        streams: Streams,
        protections: Sequence[Protection] = (),
        recorder: Recorder | None = None,
        ledger: Log | None = None,
        sampling: Callable[[int | None], Drawn] = lambda _: Drawn(),
        compromised: Callable[[int], frozenset[int]] = lambda round: frozenset(),
    ) -> None:
        check_protections(card, protections)
        self.chain = ProtectionChain(protections, streams, compromised)
        known = self.chain.tells_members
        self.accounts = Accounts(ledger, sampling, getattr(card, "counts_made", False), known)
        self.records = Records(recorder)
        # what a malicious server broadcasts instead (fl/threats/adversary.py)
        self.tamper: Callable[[int, Message, Sequence[int]], Message] = lambda _, message, __: message
        self._checks = Checks(card, self.chain.central)
        self.classes = 0  # that a message may name; 0: any
        self._dealt = 0  # uploads of this round of which the server has had the sums
        self._is_timed = False  # whether this round's ledger says that the server times its clients

    def broadcast(self, round: int, message: Message, receivers: Sequence[int]) -> Message:
        """Server to every selected client: the same content for all of them."""
        message = self.tamper(round, message, receivers)
        self._checks.check(message, Channel.DOWNLINK, SERVER)
        if receivers:
            names = tuple(str(Party.client(k)) for k in receivers)
            message = tap.current().carry(round, Channel.DOWNLINK, SERVER, ("client",), message)
            route = Route(round, Channel.DOWNLINK, SERVER, names, ("client",))
            self.records.keep(route, message, len(receivers))
        return message

    def downlink(self, round: int, message: Message, receiver: int) -> Message:
        """Server to one client, where the content is for that client alone."""
        return self._carry(round, Channel.DOWNLINK, (str(Party.client(receiver)),), message)

    def uplink(
        self,
        round: int,
        message: Message,
        sender: int,
        reference: Message,
        settled: Collection[Kind] = (),
        memory: Tree | None = None,
    ) -> Message | None:
        """Client to server. None where the server rejects all of it.

        It does where a number is not finite, a count is below 0, counts are of nothing, or a class is named
        that there is not. Not so in kinds that get noise, where such a number counts as no change.
        `settled` are kinds that the method protects itself, whose releases it enters itself; `memory` is what the
        client's protections remember, which is changed.
        """
        party, server = Party.client(sender), (SERVER.role.value,)
        self._checks.check(message, Channel.UPLINK, party)
        message = self.chain.make_finite(round, party, message, reference)
        if not (self._is_sound(round, party, message) and names_no_other(message, self.classes)):
            return None
        hidden = self.chain.hides_single_uploads
        seen_by = () if hidden else server
        message, lines = self._protect(round, party, seen_by, message, reference, settled, memory)
        if any(r.shared for r in lines):
            check_shares(lines, message)
        message = tap.current().carry(round, Channel.UPLINK, party, seen_by, message)
        self._checks.note_upload()
        keep = self.records.keep_summed if hidden else self.records.keep
        keep(Route(round, Channel.UPLINK, party, server, seen_by), message)
        return message

    def relay(
        self,
        round: int,
        message: Message,
        sender: int,
        receiver: int,
        mediator: int | None = None,
        settled: Collection[Kind] = (),
    ) -> Message | None:
        """Client to the next client; a mediator on the path sees it too. `settled` as in uplink()."""
        party = Party.client(sender)
        self._checks.check(message, Channel.RELAY, party)
        message = self.chain.make_finite(round, party, message, {})
        if not self._is_sound(round, party, message):
            return None
        to = str(Party.client(receiver))
        seen_by = (to,) if mediator is None else (to, str(Party(Role.MEDIATOR, mediator)))
        message, lines = self._protect(round, party, seen_by, message, {}, settled)
        if shared := [r for r in lines if r.shared]:
            raise UserError(
                f"{shared[0].source} cannot protect {self._checks.title}: {shared[0].kind} has shares of noise, "
                "and the next client reads it alone",
                hint="use contributors: 1 for what travels from client to client",
            )
        message = tap.current().carry(round, Channel.RELAY, party, seen_by, message)
        self.records.keep(Route(round, Channel.RELAY, party, (to,), seen_by), message)
        return message

    def observe(self, round: int, sender: int, time: float, down: Message, up: Message) -> None:
        """The server's own clock: when a client's answer came, and how much was exchanged.

        Nobody sends it, and nothing protects it.
        """
        party, server = Party.client(sender), (SERVER.role.value,)
        if not self._is_timed:
            self._is_timed = True
            self.accounts.enter_clear(round, Kind.TASK_TIME, "the server's clock", server)
        message: Message = {Kind.TASK_TIME: observation(time, down, up)}
        message = tap.current().carry(round, Channel.OBSERVED, party, server, message)
        self.records.note(Route(round, Channel.OBSERVED, party, server, server), message)

    def release(self, round: int, message: Message) -> None:
        """The final model or generator, to whoever gets it."""
        self._carry(round, Channel.RELEASE, (str(PUBLIC),), message)

    def average(self, round: int, before: Payload, mean: Payload, delivered: int, clients: int) -> Payload:
        """The model that the mean of a round's uploads becomes, after a central protection.

        Called in every round, with `before` as the mean where nothing came back: noise that is left
        out when nobody answers would tell that nobody did.
        """
        mean, lines = self.chain.average(round, before, mean, delivered, clients, self.accounts.get_law(round))
        for line in lines:
            self.accounts.enter(line)
        self._checks.note_average()
        return mean

    def deal_sums(self, round: int, heard: int) -> Iterator[Message]:
        """What reaches a server behind secure aggregation of a round's uploads, `heard` of which it collected.

        Raises UserError where it has read others one by one.
        """
        self._dealt = heard
        self.check_dealt(round)
        return self.records.sums.deal()

    def check_dealt(self, round: int) -> None:
        """Raise UserError where uploads came of which the server was to have a sum alone, and it had each."""
        if single := self.records.sums.messages - self._dealt:
            raise UserError(
                f"secure aggregation cannot protect {self._checks.title}: in round {round} its server reads "
                f"{single} upload{'s' * (single > 1)} one by one, outside of the round's sum",
                hint="leave secure_aggregation out, or read uploads in combine() alone",
            )

    def end_round(self, round: int) -> dict[Channel, int]:
        """Close a round; returns its bytes by channel."""
        self._dealt, self._is_timed = 0, False
        self.accounts.end_round()
        self.chain.end_round()
        return self.records.end_round(round)

    def _is_sound(self, round: int, sender: Party, message: Message) -> bool:
        """Whether the server takes a message that was made finite: of what gets noise it does not see more."""
        noised = self.chain.list_noised(round, sender, message)
        return is_finite({kind: payload for kind, payload in message.items() if kind not in noised})

    def _carry(self, round: int, channel: Channel, receivers: tuple[str, ...], message: Message) -> Message:
        """What the server sends, to these alone."""
        self._checks.check(message, channel, SERVER)
        message = tap.current().carry(round, channel, SERVER, receivers, message)
        self.records.keep(Route(round, channel, SERVER, receivers, receivers), message)
        return message

    def _protect(
        self,
        round: int,
        sender: Party,
        seen_by: tuple[str, ...],
        message: Message,
        reference: Message,
        settled: Collection[Kind],
        memory: Tree | None = None,
    ) -> tuple[Message, list[Release]]:
        """What a client sends after the protections, with its releases, which are entered."""
        message, releases = self.chain.apply(
            round, sender, seen_by, message, reference, settled, {} if memory is None else memory
        )
        for release in releases:
            if release.shared and self.chain.hides_single_uploads:
                self.accounts.enter_later(release)
            else:
                self.accounts.enter(release)
        return message, releases
