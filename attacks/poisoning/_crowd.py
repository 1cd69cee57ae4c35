"""What colluding clients know of a round as numbers: the honest changes as rows, their mean and deviations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedaudit.attacks.poisoning._updates import changes, first, forged, shaped, vector
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.adversary import Colluded, Meeting, Message, Payload


@dataclass(frozen=True)
class Crowd:
    """The updates of one round; honest [h, P] float64, h may be 0."""

    meeting: Meeting
    kind: Kind
    like: Payload  # names and shapes of a change
    honest: Tensor
    clients: tuple[int, ...]  # of the rows

    @property
    def malicious(self) -> int:
        return len(self.meeting.own)

    @property
    def heard(self) -> int:
        return len(self.honest) + self.malicious

    @cached_property
    def mean(self) -> Tensor:
        return self.honest.mean(0)

    @cached_property
    def deviation(self) -> Tensor:
        """[P], with n - 1; zeros of a single client."""
        return self.honest.std(0) if len(self.honest) > 1 else torch.zeros_like(self.mean)

    @cached_property
    def median_norm(self) -> float:
        return float(self.honest.norm(dim=1).quantile(0.5))

    def sent(self, forge: Callable[[int], Tensor]) -> Colluded:
        """forge(client) -> [P] is what each compromised client sends as its change."""
        messages: dict[int, Message] = {}
        for k, message in self.meeting.own.items():
            change = shaped(forge(k), self.like)
            messages[k] = forged(message, self.meeting.received[k], change, self.kind)
        return Colluded(messages=messages)

    def own(self, client: int) -> Tensor:
        """[P]: what a compromised client would have sent."""
        found = first(self.meeting.own[client], self.meeting.received[client], self.meeting.parameters)
        return vector(found)


def gathered(meeting: Meeting) -> Crowd | None:
    """The round's updates; None where nobody honest is heard: there is then nothing to hide behind."""
    honest: Mapping[int, Message] = meeting.honest or {}
    if not honest:
        return None
    k = next(iter(meeting.own))
    kind, like = next(changes(meeting.own[k], meeting.received[k], meeting.parameters))
    rows = [vector(first(m, meeting.received[j], meeting.parameters)) for j, m in honest.items()]
    return Crowd(meeting, kind, like, torch.stack(rows), tuple(honest))
