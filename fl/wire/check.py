"""First step of the wire: a message is refused where its card does not declare it, or it would go round a
central protection.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import finite
from fedaudit.fl.wire.protection import Message, Protection


class Declared(Protocol):
    """What the wire reads of a method's card; fedaudit.fl.method.Card is the usual one."""

    @property
    def title(self) -> str: ...


def check_protections(card: Declared, protections: Sequence[Protection]) -> None:
    """Raise UserError where a protection cannot work with the method, or with those after it."""
    uplink: Collection[Kind] = getattr(card, Channel.UPLINK.value)
    for number, protection in enumerate(protections):
        uplink = [k for k in uplink if k not in protection.withholds()]
        if reason := protection.refuses(uplink):
            raise UserError(
                f"{protection.title} cannot protect {card.title}: {reason}",
                hint="leave the protection out, or choose another method",
            )
        if protection.remembers() and not getattr(card, "collects", True):
            raise UserError(
                f"{protection.title} with a residual cannot protect {card.title}: its clients remember nothing "
                "from one upload to the next",
                hint="leave the residual out, or choose fedavg or another method of rounds",
            )
        later = [p for p in protections[number + 1 :] if not p.hides_single_uploads()]
        if protection.central and later:  # its clip would bound something else
            raise UserError(
                f"{later[0].title} would change what {protection.title} has clipped",
                hint="list the central protection last",
            )


def is_finite(message: Message) -> bool:
    """Whether every number is finite, no count below 0, and none of nothing at all."""
    return all(finite(payload, kind.counted) for kind, payload in message.items())


def names_no_other(message: Message, classes: int) -> bool:
    """Whether all classes that it names are among so many; 0: how many there are is not known."""
    named = (v for payload in message.values() for k, v in payload.items() if k in ("classes", "labels"))
    whole = [v for v in named if v.numel() and not v.is_floating_point()]
    return not classes or all(int(v.min()) >= 0 and int(v.max()) < classes for v in whole)


def check_shares(lines: Collection[Release], message: Message) -> None:
    """Raise UserError where a server does not add up a client's shares of noise as they are.

    Multiplied by what a client holds, the share of one may be all the noise there is; and of the rows of a class
    only those have a share who have the class.
    """
    for line in (r for r in lines if r.shared and r.kind in set(Kind)):
        kind = Kind(line.kind)
        if kind.summed is Summed.WEIGHTED and Kind.NUM_EXAMPLES in message:
            how = "times the number of its sender's examples"
        elif kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
            how = "class by class, of those who have the class"
        else:
            continue
        raise UserError(
            f"{line.source}: shares of noise that {line.aggregated} clients make together hide nobody in "
            f"{kind.value}, which is added up {how}",
            hint="use contributors: 1, or weighting: uniform where models are sent",
        )


class Checks:
    """Refuses messages of one run, whose `central` protection acts on the mean of a round's uploads."""

    def __init__(self, card: Declared, central: Protection | None) -> None:
        self._card, self._central = card, central
        self._unaveraged = False  # uploads came in that the central protection has yet to make safe

    def check(self, message: Message, channel: Channel, sender: Party) -> None:
        """Raise UserError for a kind that the card does not declare on this channel."""
        if self._central is not None:
            self._check_average(self._central, channel)
        declared: tuple[Kind, ...] = getattr(self._card, channel.value)
        for kind in message:
            if not isinstance(kind, Kind):
                raise UserError(
                    f"{self._card.title}: {sender} sent {kind!r}, which is {type(kind).__name__}, "
                    "expected a Kind",
                    hint=f"write Kind({str(kind)!r}), of fedaudit.fl.kinds",
                )
            if kind not in declared:
                raise UserError(
                    f"{self._card.title}: {sender} sent {kind.value!r} on the {channel.value}, "
                    "which its card does not declare",
                    hint=f"add Kind({kind.value!r}) to card.{channel.value}, or stop sending it",
                )
            for name, value in message[kind].items():
                if tied := getattr(value, "__dict__", None):
                    raise UserError(
                        f"{self._card.title}: {sender} ties {next(iter(tied))!r} to the array {name!r} of "
                        f"{kind.value}, which no message can carry",
                        hint="send it as an array of its own",
                    )

    @property
    def title(self) -> str:
        """The method's."""
        return self._card.title

    def note_upload(self) -> None:
        """An upload has come in."""
        self._unaveraged = self._central is not None

    def note_average(self) -> None:
        """The round's uploads have passed the central protection."""
        self._unaveraged = False

    def _check_average(self, central: Protection, channel: Channel) -> None:
        """Nobody but the server may get anything that a central protection has not passed."""
        if channel == Channel.RELAY or (self._unaveraged and channel != Channel.UPLINK):
            raise UserError(
                f"{central.title} cannot protect {self._card.title}: something would reach a client or the "
                f"public ({channel.value}) before noise is added to the mean of the uploads",
                hint="use a method whose server only averages models, such as fedavg",
            )
