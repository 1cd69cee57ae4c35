"""Second step of the wire: the protections change a message, and say what is released of it."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from fedaudit.fl.artifact import Party
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.coded import flat, masks_of, spread
from fedaudit.fl.recording.noise import NoiseSource, with_origin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.noising import NON_FINITE, base_of, replace_non_finite
from fedaudit.fl.wire.protection import Averaging, Message, Payload, Protection, Sending, in_order

T = TypeVar("T")


class ProtectionChain:
    """The protections of one run, in their order.

    `compromised` gives, of a round, the clients whom no protection of the client's side binds.
    """

    def __init__(
        self, protections: Sequence[Protection], streams: Streams, compromised: Callable[[int], frozenset[int]]
    ) -> None:
        self.protections, self.compromised = protections, compromised
        self._streams = streams
        self._listed: set[tuple[int, Kind]] = set()  # kinds of a round that are released in clear
        self._sent: dict[tuple[int, str], int] = {}  # messages of each sender in this round

    @property
    def central(self) -> Protection | None:
        """The protection that acts on the mean of a round's uploads, where there is one."""
        return next((p for p in self.protections if p.central), None)

    @property
    def hides_single_uploads(self) -> bool:
        """Whether the server reads sums only."""
        return any(p.hides_single_uploads() for p in self.protections)

    @property
    def tells_members(self) -> bool:
        """Whether who takes part in a round is told all who do."""
        return any(p.tells_members() for p in self.protections)

    def apply(
        self,
        round: int,
        sender: Party,
        seen_by: tuple[str, ...],
        message: Message,
        reference: Message,
        settled: Collection[Kind],
        memory: Tree,
    ) -> tuple[Message, list[Release]]:
        """Return a client's message as it leaves, and the lines that account for it.

        `reference` is what an update is relative to; `settled` are kinds that the method protects itself. What
        the sender's protections remember is `memory`, which is changed.
        """
        # What a client uploads reaches other clients and the public through the global model, so
        # by post-processing they are observers of the release as well.
        observers = tuple(dict.fromkeys((*seen_by, "client", "public")))
        message = tap.current().send(round, sender, message, reference)
        masks = masks_of(message)  # of a part of a network nothing but its numbers is protected
        message, reference = flat(message, masks), flat(reference, masks)
        nothing: torch.Generator = None  # type: ignore[assignment]  # until a protection is at work
        sending = Sending(round, sender, observers, dict(message), reference, nothing, protected=set(settled))
        # a second message of a sender in a round must not carry the noise of the first once more
        again = self._sent.get((round, str(sender)), 0)
        self._sent[round, str(sender)] = again + 1
        bad = sender.index in self.compromised(round)
        skipped = bad and any(map(self._skips, self.protections))
        shares: dict[Kind, tuple[str, Payload]] = {}  # of noise: who made them, and what carries them
        for number, protection in enumerate(self.protections):
            if bad and self._skips(protection):
                continue
            keys: tuple[int | str, ...] = (number, round, str(sender))
            keys += (again,) if again else ()
            sending.rng = self._streams.torch("protection", *keys)
            sending.noise = source = NoiseSource(self._streams.noise("protection", *keys))
            sending.memory = dict(memory.get(str(number), {}))
            before = len(sending.releases)
            _act(protection, protection.apply, sending)
            _check_shares_stay(shares, sending.message, protection)
            if sending.memory:
                memory[str(number)] = sending.memory
            stream = "/".join(map(str, ("protection", *keys)))
            added = _name_source(
                sending.releases[before:], [*source.issued, *_list_training_noise(protection, sending)]
            )
            sending.releases[before:] = [
                _name_stream(_describe_clip(r, protection), f"{stream}/{i}", sending.message)
                for i, r in enumerate(added)
            ]
            for r in (r for r in added if r.shared and r.kind in sending.message):
                shares[Kind(r.kind)] = (r.source, sending.message[Kind(r.kind)])
        if shares and masks:
            kind, (maker, _) = next(iter(shares.items()))
            raise UserError(
                f"{maker}: shares of noise made together hide nobody in {kind.value}, of which clients send "
                "different parts",
                hint="use contributors: 1, or a method whose clients send whole models",
            )
        for kind, payload in sending.message.items():
            sending.message[kind] = in_order(kind, message.get(kind, payload), payload)
            if kind.control_plane or kind in sending.protected or (round, kind) in self._listed or skipped:
                continue
            self._listed.add((round, kind))  # one line a round and kind stands for every sender
            sending.releases.append(
                Release(round=round, kind=kind, sender=f"{sender.role}/*", observers=observers, mechanism="none")
            )
        sent = spread(sending.message, masks)  # what is masked for a secure sum is dense
        dense = {kind: dict(payload) for kind, payload in sent.items()} if self.hides_single_uploads else sent
        return dense, sending.releases

    def limit(self, round: int, sender: int, message: Message, reference: Message) -> Message:
        """What clips alone leave of a client's message, see `Protection.limit`."""
        bad = sender in self.compromised(round)
        for protection in self.protections:
            if not (bad and self._skips(protection)):
                message = protection.limit(message, reference)
        return message

    def make_finite(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        """Return the message with no change where one is not finite, in kinds that get noise.

        That a client's training diverged, so that its message would be rejected, is then not seen. Other kinds,
        and messages of clients whom no protection binds, stay as they are.
        """
        noised = self.list_noised(round, sender, message)
        finite = {k: replace_non_finite(message[k], base_of(k, reference), k.counted) for k in noised}
        return message | finite

    def list_noised(self, round: int, sender: Party, kinds: Iterable[Kind]) -> list[Kind]:
        """Those of the kinds that get noise where this client sends them."""
        bad = sender.index in self.compromised(round)
        at_work = [p for p in self.protections if not (bad and self._skips(p))]
        return [kind for kind in kinds if any(p.adds_noise_to(kind) for p in at_work)]

    def average(
        self,
        round: int,
        before: Payload,
        mean: Payload,
        delivered: int,
        clients: int,
        sampling: Callable[[int | None], Drawn],
    ) -> tuple[Payload, list[Release]]:
        """Return the model that the mean of a round's uploads becomes, and the lines that account for it."""
        lines: list[Release] = []
        for number, protection in enumerate(self.protections):
            if not protection.central:
                continue
            source = NoiseSource(self._streams.noise("protection", number, round, "mean"))
            rates = (sampling(k).rate for k in range(clients))  # summed so that ten times 0.3 are 3
            averaging = Averaging(
                round=round,
                before=before,
                model=mean,
                delivered=delivered,
                expected=math.fsum(rates),
                clients=clients,
                drawn=sampling(None),
                rng=self._streams.torch("protection", number, round, "mean"),
                noise=source,
            )
            _act(protection, protection.average, averaging)
            mean, stream = averaging.model, f"protection/{number}/{round}/mean"
            for i, release in enumerate(_name_source(averaging.releases, source.issued)):
                line = _describe_clip(release, protection)
                lines.append(_name_stream(line, f"{stream}/{i}", {Kind.GLOBAL_MODEL: mean}))
            mean = tap.current().average(round, mean, averaging.releases)
        return mean, lines

    def end_round(self) -> None:
        """Forget who has sent what."""
        self._listed.clear()
        self._sent.clear()

    def _skips(self, protection: Protection) -> bool:
        """Whether a compromised client goes without it: what the server does to sums it cannot do to one."""
        return protection.enforced_by == "client" or self.hides_single_uploads


def _act(protection: Protection, act: Callable[[T], object], on: T) -> None:
    """Raise UserError where it returns something, which nobody reads: what it would change stayed as it was."""
    if (returned := act(on)) is not None:
        is_message = isinstance(on, Sending)
        name, place = ("apply", "sending.message[kind]") if is_message else ("average", "averaging.model")
        raise UserError(
            f"{type(protection).__name__}: {name}() returned {type(returned).__name__}, which nobody reads",
            hint=f"write {place} = ... and return nothing",
        )


def _check_shares_stay(
    shares: Mapping[Kind, tuple[str, Payload]], message: Message, protection: Protection
) -> None:
    """Raise UserError where a protection changes shares of noise: of a sum, it does something else."""
    for kind, (source, made) in shares.items():
        now = message.get(kind, made)  # withheld, it tells nobody anything
        if now.keys() != made.keys() or not all(torch.equal(now[name], value) for name, value in made.items()):
            raise UserError(
                f"{protection.title} would change shares of noise that {source} has put on {kind.value}: only "
                "the sum of them as they are hides anybody",
                hint=f"list {source} after it, or use contributors: 1",
            )


def _list_training_noise(protection: Protection, sending: Sending) -> list[Release]:
    """Lines of noise that was drawn while the sender trained, in fl/training/private.py."""
    private = protection.training()
    if private is None:
        return []
    return [private.line(sending.round, str(sending.sender), k, sending.observers) for k in sending.message]


def _name_source(releases: Iterable[Release], issued: Collection[Release]) -> list[Release]:
    """The lines with the generator of their noise, where the run's own source drew it, and else without any."""
    return [with_origin(r) if r in issued else replace(r, generator="") for r in releases]


def _describe_clip(release: Release, protection: Protection) -> Release:
    """A noised line that says what became of numbers that were not finite."""
    if release.mechanism == "none" or not release.clipped or release.kind not in set(Kind):
        return release
    is_replaced = protection.adds_noise_to(Kind(release.kind))
    return replace(release, clipped=f"{release.clipped}; {NON_FINITE}") if is_replaced else release


def _name_stream(release: Release, stream: str, message: Message) -> Release:
    """A noised line with the stream of its noise and the type of the numbers that carry it."""
    if release.mechanism == "none":
        return release
    named = next((p for kind, p in message.items() if kind == release.kind), {})
    types = [str(v.dtype).removeprefix("torch.") for v in named.values() if v.is_floating_point()]
    return replace(
        release, stream=release.stream or stream, precision=release.precision or min(types, default="", key=len)
    )
