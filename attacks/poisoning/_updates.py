"""Updates as adversaries see them: the change that a message stands for, and what colluding clients know.

A model counts as its change from what its sender received. Only parameters are forged: a forged running
statistic could make a model that computes nothing, and that is easy to see. The honest changes of a round are
rows of a matrix, with their mean and deviations.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.adversary import Adversary, Colluded, Meeting, Message, Payload
from fedaudit.fl.threats.forging import BASES, find_base, forge_message
from fedaudit.fl.threats.threat import Conduct, Position, ThreatModel

KINDS = tuple(BASES)
EXACT = 1 << 53  # the largest number up to which every one has a double

OMNISCIENT = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS, knows=frozenset({"honest_updates"}))


def changes(message: Message, received: Message, parameters: Collection[str]) -> Iterator[tuple[Kind, Payload]]:
    """The kinds of a message that carry an update, each with its change in double precision."""
    for kind in KINDS:
        if kind in message:
            base = find_base(kind, received)
            floats = {k: v for k, v in message[kind].items() if v.is_floating_point()}
            own = {k: v for k, v in floats.items() if k in parameters} or floats
            yield kind, {k: v.double() - base[k].double() if k in base else v.double() for k, v in own.items()}


def find_change(message: Message, received: Message, parameters: Collection[str]) -> Payload:
    """The change of the first of them; nothing where a message carries none."""
    return next((change for _, change in changes(message, received, parameters)), {})


def vector(change: Mapping[str, Tensor]) -> Tensor:
    """[P], double precision."""
    return torch.cat([v.double().flatten() for v in change.values()])


def shape_vector(vector: Tensor, like: Mapping[str, Tensor]) -> Payload:
    """A vector [P] as arrays of these names and shapes."""
    pieces = torch.split(vector, [v.numel() for v in like.values()])
    return {k: p.reshape(v.shape) for (k, v), p in zip(like.items(), pieces, strict=True)}


def state_number(claimed: Tensor, true: Tensor) -> Tensor:
    """A false number in the precision of the true one, and no larger than that holds."""
    if true.is_floating_point():
        return claimed.clamp(max=torch.finfo(true.dtype).max).to(true.dtype)
    return claimed.round().clamp(max=min(EXACT, torch.iinfo(true.dtype).max)).to(true.dtype)


def measure(rows: Tensor) -> Tensor:
    """[n, P] -> [n, n] squared distances, not by inner products: equal rows are at 0."""
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()


Forge = Callable[[int], Tensor]  # client -> [P]: what it sends as its change


@dataclass(frozen=True)
class Crowd:
    """The updates of one round; honest [h, P] float64."""

    meeting: Meeting
    kind: Kind
    like: Payload  # names and shapes of a change
    honest: Tensor
    clients: tuple[int, ...]  # of the rows
    heard: int  # clients of the round

    @property
    def malicious(self) -> int:
        return len(self.meeting.own)

    @cached_property
    def mean(self) -> Tensor:
        return self.honest.mean(0)

    @cached_property
    def deviation(self) -> Tensor:
        """[P], with n - 1; zeros of a single client."""
        return self.honest.std(0) if len(self.honest) > 1 else torch.zeros_like(self.mean)

    @cached_property
    def honest_updates(self) -> Tensor:
        """[n, P] what everybody would have sent, the honest first."""
        return torch.cat([self.honest, torch.stack([self.compute_honest_update(k) for k in self.meeting.own])])

    @cached_property
    def distances(self) -> Tensor:
        """[h, h] squared distances of the honest changes."""
        return measure(self.honest)

    @cached_property
    def median_norm(self) -> float:
        return float(self.honest.norm(dim=1).quantile(0.5))

    def send(self, forge: Forge) -> Colluded:
        """forge(client) -> [P] is what each compromised client sends as its change."""
        messages: dict[int, Message] = {}
        for k, message in self.meeting.own.items():
            change = shape_vector(forge(k), self.like)
            messages[k] = forge_message(message, self.meeting.received[k], change, self.kind)
        return Colluded(messages=messages)

    def compute_honest_update(self, client: int) -> Tensor:
        """[P]: what a compromised client would have sent."""
        found = find_change(self.meeting.own[client], self.meeting.received[client], self.meeting.parameters)
        return vector(found)


def gather_updates(meeting: Meeting) -> Crowd:
    """The round's updates; where nobody honest is heard, those of the compromised clients stand for theirs."""
    honest, k = meeting.honest or meeting.own, next(iter(meeting.own))
    kind, like = next(changes(meeting.own[k], meeting.received[k], meeting.parameters))
    rows = [vector(find_change(m, meeting.received[j], meeting.parameters)) for j, m in honest.items()]
    return Crowd(meeting, kind, like, torch.stack(rows), tuple(honest), len(honest.keys() | meeting.own.keys()))


def partial(crowd: Crowd) -> Crowd:
    """The same for clients that cannot see what the others send: what they learnt themselves stands for it."""
    own = tuple(crowd.meeting.own)
    return replace(crowd, honest=torch.stack([crowd.compute_honest_update(k) for k in own]), clients=own)


def follow(crowd: Crowd, learnt: Mapping[int, tuple[Message, Message]]) -> Crowd:
    """The crowd of the next round, of which the compromised clients know what they would learn.

    Honest clients are taken to change what they sent by the mean of what these did.
    """
    rows = {k: vector(find_change(*learnt[k], crowd.meeting.parameters)) for k in crowd.meeting.own}
    turn = torch.stack([row - crowd.compute_honest_update(k) for k, row in rows.items()]).mean(0)
    own = {
        k: forge_message(message, crowd.meeting.received[k], shape_vector(rows[k], crowd.like), crowd.kind)
        for k, message in crowd.meeting.own.items()
    }
    return replace(crowd, meeting=replace(crowd.meeting, own=own), honest=crowd.honest + turn)


class Colluding(Adversary):
    """Adversaries whose clients send changes that the round's others determine; subclasses write forge()."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        knows: Annotated[
            Literal["all", "own"],
            Field(description="what it goes by: all updates of the round, or those of the compromised clients"),
        ] = "all"

    @abstractmethod
    def forge(self, crowd: Crowd) -> Forge:
        """What each compromised client sends as its change."""

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gather_updates(meeting)
        return crowd.send(self.forge_seeing(crowd))

    def forge_seeing(self, crowd: Crowd) -> Forge:
        """forge() of what it knows of the round."""
        return self.forge(crowd if self.config.knows == "all" else partial(crowd))
