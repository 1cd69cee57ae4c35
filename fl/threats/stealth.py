"""Stealth: where forged changes stand among the honest ones of their round, by length and by direction.

For the metrics of simulations in which clients are compromised: a rule that looks at lengths, or at directions,
can tell apart what stands at an end. Ranks are shares of honest clients below: 0.5 is the middle.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedaudit.fl.kinds import DELTAS, TRAINED, Kind
from fedaudit.fl.wire.protection import Message

MOST_BYTES = 1 << 30  # of changes held; larger rounds are not measured


@dataclass
class Stealth:
    """One round; add() every change that is sent, then ranks()."""

    parameters: Collection[str]
    _changes: dict[int, Tensor] = field(default_factory=dict)  # [P] float32
    _bytes: int = 0

    def add(self, client: int, message: Message, received: Message) -> None:
        """Note a message by its change of the model; one without a model is left out."""
        model = next((message[kind] for kind in TRAINED if kind in message), None)
        change = next((message[kind] for kind in DELTAS if kind in message), None)
        start = received.get(Kind.GLOBAL_MODEL, {})
        if model is not None and set(self.parameters) <= set(model) & set(start):
            change = {k: model[k].cpu() - start[k].cpu() for k in self.parameters}
        if not change or self._bytes > MOST_BYTES:
            return
        self._changes[client] = torch.cat([v.flatten().float().cpu() for _, v in sorted(change.items())])
        self._bytes += 4 * len(self._changes[client])

    def ranks(self, malicious: Collection[int]) -> Mapping[str, float]:
        """Means over the malicious, `norm_rank` and `cosine_rank`; nothing with fewer than two honest changes.

        The direction is the cosine with the mean of the other honest changes; equals count as half below.
        """
        forged = [v for k, v in self._changes.items() if k in malicious]
        honest = [v for k, v in self._changes.items() if k not in malicious]
        if (
            self._bytes > MOST_BYTES
            or not forged
            or len(honest) < 2
            or len({len(v) for v in (*forged, *honest)}) > 1
        ):
            return {}
        total = torch.stack(honest).sum(0)
        toward = torch.tensor([_compute_cosine(v, total - v) for v in honest])
        lengths = torch.stack(honest).norm(dim=1)
        return {
            "norm_rank": sum(_share_below(lengths, float(v.norm())) for v in forged) / len(forged),
            "cosine_rank": sum(_share_below(toward, _compute_cosine(v, total)) for v in forged) / len(forged),
        }


def _compute_cosine(a: Tensor, b: Tensor) -> float:
    return float(a.double() @ b.double() / (a.double().norm() * b.double().norm()).clamp(min=1e-300))


def _share_below(values: Tensor, value: float) -> float:
    return float(((values < value).double() + 0.5 * (values == value).double()).mean())
