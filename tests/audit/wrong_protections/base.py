"""A right protection with a hook for each thing that can go wrong: what the wrong ones start from.

One client's change of the model is one vector v: v <- v min(1, C / ||v||) + N(0, (z C)^2) per coordinate.
"""

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, change, norm, rebuild
from fedaudit.fl.wire.protection import Payload, Protection, Sending


class Noising(Protection):
    title = "A team's own clipping and noise"
    source = "a test of the audit"
    kinds = (Kind.LOCAL_MODEL,)

    @settings
    class Config:
        clip_norm: float = 1.0
        noise_multiplier: float = 1.0

    @property
    def bound(self) -> float:
        return float(self.config.clip_norm)

    @property
    def std(self) -> float:
        return float(self.config.noise_multiplier * self.config.clip_norm)

    def describe(self) -> str:
        return f"the change of the model clipped to norm {self.bound:g}, with noise of {self.std:g}"

    def noise_std(self, kind: Kind) -> float:
        return self.std if kind in self.kinds else 0.0

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        factor = min(1.0, self.bound / max(norm(moving, 2), 1e-12))
        return {name: value * factor for name, value in moving.items()}

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return torch.randn(value.shape, generator=sending.rng) * self.std

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        return {name: value + self.noise(name, value, sending) for name, value in clipped.items()}

    def line(self, kind: Kind, sending: Sending) -> Release:
        return Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="gaussian",
            noise_std=self.std,
            sensitivity=self.bound,
            clipped="on the client's whole change of the model, before noise",
            clip_norm=self.bound,
            clip_of="update",
            derived="clip",
            source=type(self).__name__,
        )

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        return [self.line(kind, sending)]

    def apply(self, sending: Sending) -> None:
        for kind in self.kinds:
            if kind not in sending.message:
                continue
            payload, base = sending.message[kind], base_of(kind, sending.reference)
            moved = self.sent(self.clip(change(payload, base), sending), sending)
            sending.message[kind] = rebuild(payload, base, moved)
            sending.protected.add(kind)
            sending.releases += self.lines(kind, sending)
