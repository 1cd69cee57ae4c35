"""The wire: the only path between parties.

It refuses a kind that the method's card does not declare, applies the protections, decides once who
could see the message, records it, and lists every release in the ledger. A method cannot forget to
emit an artifact, or smuggle one out.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from fedaudit.fl.artifact import PUBLIC, SERVER, Channel, Party, Role
from fedaudit.fl.data.participation import UNKNOWN, Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE, Release, to_line
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.coded import flat, masks_of, spread
from fedaudit.fl.recording.noise import NoiseSource, with_origin
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.recording.sizes import message_bytes, observation
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import finite
from fedaudit.fl.wire.protection import Averaging, Message, Payload, Protection, Sending, in_order
from fedaudit.fl.wire.sums import Sums


class Declared(Protocol):
    """What the wire reads of a method's card; fedaudit.fl.method.Card is the usual one."""

    @property
    def title(self) -> str: ...


@dataclass
class Wire:
    """Carries messages for one run. `recorder` and `ledger` may be None: nothing is kept then."""

    card: Declared
    streams: Streams
    protections: Sequence[Protection] = ()
    recorder: Recorder | None = None
    ledger: Log | None = None
    sampling: Callable[[int | None], Drawn] = lambda _: Drawn()  # law of the draw: see drew()
    # round -> clients whom no protection of the client's side binds
    compromised: Callable[[int], frozenset[int]] = lambda round: frozenset()
    # what a malicious server broadcasts instead (fl/threats/adversary.py)
    tamper: Callable[[int, Message, Sequence[int]], Message] = lambda _, message, __: message
    sent: dict[Channel, int] = field(default_factory=lambda: dict.fromkeys(Channel, 0))  # bytes
    _drawn: tuple[int, frozenset[int]] | None = None  # the round of the last draw, and who it was
    _listed: set[tuple[int, Kind]] = field(default_factory=set)
    _sent: dict[tuple[int, str], int] = field(default_factory=dict)  # messages of each sender in this round
    _hidden: Sums = field(default_factory=Sums)  # uploads of the round that the server reads summed
    _first: tuple[Party, Message] | None = None  # the first of them
    _shares: list[Release] = field(default_factory=list)  # of noise that the round's senders add up to
    _unaveraged: bool = False  # uploads came in that a central protection has yet to make safe

    def __post_init__(self) -> None:
        uplink: Collection[Kind] = getattr(self.card, Channel.UPLINK.value)
        for number, protection in enumerate(self.protections):
            uplink = [k for k in uplink if k not in protection.withholds()]
            if reason := protection.refuses(uplink):
                raise UserError(
                    f"{protection.title} cannot protect {self.card.title}: {reason}",
                    hint="leave the protection out, or choose another method",
                )
            later = [p for p in self.protections[number + 1 :] if not p.hides_single_uploads()]
            if protection.central and later:  # its clip would bound something else
                raise UserError(
                    f"{later[0].title} would change what {protection.title} has clipped",
                    hint="list the central protection last",
                )

    @property
    def central(self) -> Protection | None:
        """The protection that acts on the mean of a round's uploads, where there is one."""
        return next((p for p in self.protections if p.central), None)

    @property
    def hidden(self) -> bool:
        """Whether the server reads sums only."""
        return any(p.hides_single_uploads() for p in self.protections)

    @property
    def adds_up(self) -> bool:
        """Whether this round's senders add up their shares of noise."""
        return bool(self._shares)

    def drew(self, round: int, answering: Collection[int], law: Callable[[int | None], Drawn]) -> None:
        """Who was drawn to take part in a round, and how: what the ledger says of sampling comes from here."""
        before = self._drawn[1] if self._drawn is not None and self._drawn[0] == round else frozenset()
        if before:  # two draws in one round: neither law holds alone
            law = lambda _: UNKNOWN  # noqa: E731
        self._drawn, self.sampling = (round, before | frozenset(answering)), law

    @property
    def answering(self) -> frozenset[int]:
        """Who was drawn last."""
        return self._drawn[1] if self._drawn is not None else frozenset()

    def selects(self, round: int) -> None:
        """The server chose the round's clients by what it knows of their data: a release in clear."""
        self.enter(
            Release(
                round=round,
                kind="selection",
                sender=f"{Role.CLIENT.value}/*",
                observers=EVERYONE,
                mechanism="none",
                source="the method's choice of clients",
            )
        )

    def average(self, round: int, before: Payload, mean: Payload, delivered: int, clients: int) -> Payload:
        """The model that the mean of a round's uploads becomes, after a central protection.

        Called in every round, with `before` as the mean where nothing came back: noise that is left
        out when nobody answers would tell that nobody did.
        """
        for number, protection in enumerate(self.protections):
            if not protection.central:
                continue
            source = NoiseSource(self.streams.noise("protection", number, round, "mean"))
            rates = (self.sampling(k).rate for k in range(clients))  # summed so that ten times 0.3 are 3
            averaging = Averaging(
                round=round,
                before=before,
                model=mean,
                delivered=delivered,
                expected=math.fsum(rates),
                clients=clients,
                drawn=self.sampling(None),
                rng=self.streams.torch("protection", number, round, "mean"),
                noise=source,
            )
            protection.average(averaging)
            mean, stream = averaging.model, f"protection/{number}/{round}/mean"
            for i, release in enumerate(_name_source(averaging.releases, source.issued)):
                self.enter(_name_stream(release, f"{stream}/{i}", {Kind.GLOBAL_MODEL: mean}))
            mean = tap.current().average(round, mean, averaging.releases)
        self._unaveraged = False
        return mean

    def pooled(self, clients: Iterable[int]) -> None:
        """These clients' examples were brought to one place and trained on there, with nothing sent."""
        if self.recorder is not None:
            self.recorder.provenance.pooled(clients)

    def restarted(self) -> None:
        """The shared model begins again from its first weights: nothing that was heard is in it."""
        if self.recorder is not None:
            self.recorder.provenance.restarted()

    def milestone(self, round: int) -> None:
        """What follows in this round is kept where only last rounds are: it is the last of its kind, or the
        first, before anything is trained."""
        if self.recorder is not None:
            self.recorder.milestones.add(round)

    def broadcast(self, round: int, message: Message, receivers: Sequence[int]) -> Message:
        """Server to every selected client: the same content for all of them."""
        message = self.tamper(round, message, receivers)
        self._check(message, Channel.DOWNLINK, SERVER)
        if receivers:
            names = tuple(str(Party.client(k)) for k in receivers)
            message = tap.current().carry(round, Channel.DOWNLINK, SERVER, ("client",), message)
            self._keep(round, Channel.DOWNLINK, SERVER, names, ("client",), message, len(receivers))
        return message

    def downlink(self, round: int, message: Message, receiver: int) -> Message:
        """Server to one client, where the content is for that client alone."""
        self._check(message, Channel.DOWNLINK, SERVER)
        name = (str(Party.client(receiver)),)
        message = tap.current().carry(round, Channel.DOWNLINK, SERVER, name, message)
        self._keep(round, Channel.DOWNLINK, SERVER, name, name, message)
        return message

    def uplink(
        self, round: int, message: Message, sender: int, reference: Message, settled: Collection[Kind] = ()
    ) -> Message | None:
        """Client to server. None where a number is not finite, or a count below 0: the server rejects all of it.

        `settled` are kinds that the method protects itself, whose releases it enters itself.
        """
        party = Party.client(sender)
        self._check(message, Channel.UPLINK, party)
        if not all(finite(p, k.counted) for k, p in message.items()):
            return None
        hidden = self.hidden
        seen = () if hidden else (SERVER.role.value,)
        message = self._protect(round, party, seen, message, reference, settled)
        message = tap.current().carry(round, Channel.UPLINK, party, seen, message)
        self._unaveraged = self.central is not None
        self._keep(round, Channel.UPLINK, party, ("server",), seen, message)
        if hidden:
            self._first = self._first or (party, message)
            self._hidden.add(message)
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
        self._check(message, Channel.RELAY, party)
        if not all(finite(p, k.counted) for k, p in message.items()):
            return None
        to = str(Party.client(receiver))
        seen = (to,) if mediator is None else (to, str(Party(Role.MEDIATOR, mediator)))
        message = self._protect(round, party, seen, message, {}, settled)
        message = tap.current().carry(round, Channel.RELAY, party, seen, message)
        self._keep(round, Channel.RELAY, party, (to,), seen, message)
        return message

    def observe(self, round: int, sender: int, time: float, down: Message, up: Message) -> None:
        """The server's own clock: when a client's answer came, and how much was exchanged.

        Nobody sends it, and nothing protects it.
        """
        if self.recorder is not None:
            self.recorder.message(
                round=round,
                channel=Channel.OBSERVED,
                sender=Party.client(sender),
                receivers=("server",),
                seen_by=("server",),
                payloads={Kind.TASK_TIME: observation(time, down, up)},
            )

    def release(self, round: int, message: Message) -> None:
        """The final model or generator, to whoever gets it."""
        self._check(message, Channel.RELEASE, SERVER)
        message = tap.current().carry(round, Channel.RELEASE, SERVER, ("public",), message)
        self._keep(round, Channel.RELEASE, SERVER, (str(PUBLIC),), ("public",), message)

    def _check(self, message: Message, channel: Channel, sender: Party) -> None:
        if self.central is not None:
            self._check_averaged(self.central, channel)
        declared: tuple[Kind, ...] = getattr(self.card, channel.value)
        for kind in message:
            if kind not in declared:
                raise UserError(
                    f"{self.card.title}: {sender} sent {kind.value!r} on the {channel.value}, "
                    "which its card does not declare",
                    hint=f"add Kind.{kind.name} to card.{channel.value}, or stop sending it",
                )

    def _check_averaged(self, central: Protection, channel: Channel) -> None:
        """Nobody but the server may get anything that a central protection has not passed."""
        if channel == Channel.RELAY or (self._unaveraged and channel != Channel.UPLINK):
            raise UserError(
                f"{central.title} cannot protect {self.card.title}: something would reach a client or the "
                f"public ({channel.value}) before noise is added to the mean of the uploads",
                hint="use a method whose server only averages models, such as fedavg",
            )

    def enter(self, release: Release) -> None:
        """A release of a method's own mechanism, into the ledger."""
        line = self._as_counted(self._as_drawn(release))
        tap.current().enter(line)
        if self.ledger is not None:
            self.ledger.add(to_line(line))

    def _protect(
        self,
        round: int,
        sender: Party,
        seen: tuple[str, ...],
        message: Message,
        reference: Message,
        settled: Collection[Kind],
    ) -> Message:
        # What a client uploads reaches other clients and the public through the global model, so
        # by post-processing they are observers of the release as well.
        observers = tuple(dict.fromkeys((*seen, "client", "public")))
        message = tap.current().send(round, sender, message, reference)
        masks = masks_of(message)  # of a part of a network nothing but its numbers is protected
        message, reference = flat(message, masks), flat(reference, masks)
        nothing: torch.Generator = None  # type: ignore[assignment]  # until a protection is at work
        sending = Sending(round, sender, observers, dict(message), reference, nothing, protected=set(settled))
        # a second message of a sender in a round must not carry the noise of the first once more
        again = self._sent.get((round, str(sender)), 0)
        self._sent[round, str(sender)] = again + 1
        bad = sender.index in self.compromised(round)
        skipped = bad and any(map(self._is_skipped, self.protections))
        for number, protection in enumerate(self.protections):
            if bad and self._is_skipped(protection):
                continue
            keys: tuple[int | str, ...] = (number, round, str(sender))
            keys += (again,) if again else ()
            sending.rng = self.streams.torch("protection", *keys)
            sending.noise = source = NoiseSource(self.streams.noise("protection", *keys))
            before = len(sending.releases)
            protection.apply(sending)
            stream = "/".join(map(str, ("protection", *keys)))
            added = _name_source(sending.releases[before:], [*source.issued, *_list_trained(protection, sending)])
            sending.releases[before:] = [
                _name_stream(r, f"{stream}/{i}", sending.message) for i, r in enumerate(added)
            ]
        for kind, payload in sending.message.items():
            sending.message[kind] = in_order(kind, message.get(kind, payload), payload)
            if kind.control_plane or kind in sending.protected or (round, kind) in self._listed or skipped:
                continue
            self._listed.add((round, kind))  # one line a round and kind stands for every sender
            sending.releases.append(
                Release(round=round, kind=kind, sender=f"{sender.role}/*", observers=observers, mechanism="none")
            )
        for release in sending.releases:
            if release.shared and self.hidden:
                tap.current().enter(release)
                self._shares.append(release)  # what they add up to is known when the round ends
            else:
                self.enter(release)
        sent = spread(sending.message, masks)  # what is masked for a secure sum is dense
        return {kind: dict(payload) for kind, payload in sent.items()} if self.hidden else sent

    def _is_skipped(self, protection: Protection) -> bool:
        """Whether a compromised client goes without it: what the server does to sums it cannot do to one."""
        return protection.enforced_by == "client" or any(p.hides_single_uploads() for p in self.protections)

    def _as_counted(self, release: Release) -> Release:
        """Without a sensitivity where clients count what they made: one record may move that by any number."""
        made = getattr(self.card, "counts_made", False) and release.kind == Kind.NUM_EXAMPLES
        if not made or release.unit != "record" or release.mechanism == "none":
            return release
        return replace(release, sensitivity=None, clip_norm=None, clip_of="", clipped="", derived="declared")

    def _as_drawn(self, release: Release) -> Release:
        """The line with how its client was really drawn and who can tell, whatever its maker says of that.

        A rate above the law's stays: it costs more. A line of one named client is there only because that
        client took part; and the server always knows whom it selected.
        """
        if release.unit != "client" or release.mechanism == "none":
            return release
        index = release.sender.partition("/")[2]
        named = index.isdecimal()
        law = self.sampling(int(index) if named else None)
        if named and self._drawn is not None and self._drawn[0] == release.round:
            law = law if int(index) in self._drawn[1] else UNKNOWN
        rate = max(law.rate, release.sample_rate) if law.sampling == release.sampling else law.rate
        seen = EVERYONE if named else release.participation_seen_by
        if SERVER.role.value not in seen:
            seen = (SERVER.role.value, *seen)
        first = release.round - release.round % law.period
        coin = f"rounds {first} to {first + law.period - 1}" if law.period > 1 else ""
        return replace(release, sampling=law.sampling, sample_rate=rate, coin=coin, participation_seen_by=seen)

    def _keep(
        self,
        round: int,
        channel: Channel,
        sender: Party,
        receivers: tuple[str, ...],
        seen: tuple[str, ...],
        message: Message,
        copies: int = 1,
    ) -> None:
        self.sent[channel] += copies * message_bytes(message)
        if self.recorder is not None:
            self.recorder.message(
                round=round,
                channel=channel,
                sender=sender,
                receivers=receivers,
                seen_by=seen,
                payloads=message,
                copies=copies,
            )

    def end_round(self, round: int) -> dict[Channel, int]:
        """Close a round; returns its bytes by channel."""
        self._enter_shares()
        self._record_sum(round)
        if self.recorder is not None:
            self.recorder.end_round(round)
        sent, self.sent = self.sent, dict.fromkeys(Channel, 0)
        self._listed.clear()
        self._sent.clear()
        return sent

    def _enter_shares(self) -> None:
        """Lines of noise that senders add up to, at the number of them that came: fewer make less of it."""
        came = Counter(kind for kind, _ in {(r.kind, r.sender) for r in self._shares})
        for r in self._shares:
            there = min(r.aggregated, came[r.kind])
            left = math.sqrt(there / r.aggregated)
            self.enter(replace(r, aggregated=there, noise_std=r.noise_std * left, shares=came[r.kind]))
        self._shares.clear()

    def _record_sum(self, round: int) -> None:
        """What secure aggregation left the server: the sum; of one upload, that upload itself."""
        if self._first is None:
            return
        party, message = self._first
        if self._hidden.messages > 1:
            party, message = Party(Role.CLIENT), {Kind.AGGREGATE: self._hidden.value()}
        server = (SERVER.role.value,)
        message = tap.current().carry(round, Channel.UPLINK, party, server, message)
        if self.recorder is not None:
            self.recorder.message(
                round=round,
                channel=Channel.UPLINK,
                sender=party,
                receivers=server,
                seen_by=server,
                payloads=message,
            )
        self._hidden, self._first = Sums(), None


def _list_trained(protection: Protection, sending: Sending) -> list[Release]:
    """Lines of noise that was drawn while the sender trained, in fl/training/private.py."""
    private = protection.training()
    if private is None:
        return []
    return [private.line(sending.round, str(sending.sender), k, sending.observers) for k in sending.message]


def _name_source(releases: Iterable[Release], issued: Collection[Release]) -> list[Release]:
    """The lines with the generator of their noise, where the run's own source drew it, and else without any."""
    return [with_origin(r) if r in issued else replace(r, generator="") for r in releases]


def _name_stream(release: Release, stream: str, message: Message) -> Release:
    """A noised line with the stream of its noise and the type of the numbers that carry it."""
    if release.mechanism == "none":
        return release
    named = next((p for kind, p in message.items() if kind == release.kind), {})
    types = [str(v.dtype).removeprefix("torch.") for v in named.values() if v.is_floating_point()]
    return replace(
        release, stream=release.stream or stream, precision=release.precision or min(types, default="", key=len)
    )
