"""Right, and unusual: every line holds; only what holds of all floating-point noise is to be found."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.noising import norm
from fedaudit.fl.wire.protection import Averaging, Payload, Protection, Sending
from tests.audit.wrong_protections.base import Noising


class Plain(Noising):
    """Clip and noise as declared."""


class ManhattanClip(Noising):
    """Clipped to C in the L1 norm, which is at least the L2 norm that the line names."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return {k: v * min(1.0, self.bound / max(norm(moving, 1), 1e-12)) for k, v in moving.items()}


class BoxClip(Noising):
    """Every number is held within C / sqrt(d), so that all d of them have norm C at most."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        side = self.bound / math.sqrt(sum(v.numel() for v in moving.values()))
        return {k: v.clamp(-side, side) for k, v in moving.items()}


class TensorClip(Noising):
    """Each of T arrays is clipped to C / sqrt(T)."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        part = self.bound / math.sqrt(len(moving))
        return {k: v * min(1.0, part / max(float(v.norm()), 1e-12)) for k, v in moving.items()}


class MoreNoise(Noising):
    """Half as much noise again as the line says."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * 1.5


class ExtraClip(Noising):
    """Clipped to half of C, and the line says C."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return {k: v * 0.5 for k, v in super().clip(moving, sending).items()}


class Shrunk(Noising):
    """What is noised is multiplied by 0.8, a public number: the line has what leaves, of both."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        return {k: 0.8 * v for k, v in super().sent(clipped, sending).items()}

    def line(self, kind: Kind, sending: Sending) -> Release:
        std, reach = 0.8 * self.std, 0.8 * self.bound
        return replace(super().line(kind, sending), noise_std=std, sensitivity=reach, clip_norm=reach)


class Rotated(Noising):
    """Noise is drawn in another orthonormal basis, in which its law is the same: pairs turned by 45 degrees."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        drawn = super().noise(name, value, sending).flatten()
        n = len(drawn) // 2
        a, b = drawn[:n].clone(), drawn[n : 2 * n].clone()
        drawn[:n], drawn[n : 2 * n] = (a + b) / math.sqrt(2), (a - b) / math.sqrt(2)
        return drawn.reshape(value.shape)


class Rounded(Noising):
    """Rounded to multiples of 1/256 after the noise, and the line names the spacing."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        return {k: (v * 256).round() / 256 for k, v in super().sent(clipped, sending).items()}

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), resolution=1 / 256)


class GrowsByRound(Noising):
    """More noise in later rounds, each line with its own."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * (1 + sending.round / 4)

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), noise_std=self.std * (1 + sending.round / 4))


class ByClient(Noising):
    """Odd clients want more noise than even ones, each line with its own."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * (1 + (sending.sender.index or 0) % 2)

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), noise_std=self.std * (1 + (sending.sender.index or 0) % 2))


class PublicMask(Noising):
    """Half of the coordinates, the same for all and known beforehand, carry noise alone."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        out = {}
        for name, value in super().clip(moving, sending).items():
            chosen = torch.arange(value.numel()).reshape(value.shape) % 2 == sending.round % 2
            out[name] = value * chosen
        return out


class CutBack(Noising):
    """The noised update is clipped once more, to three times the length of the noise: post-processing."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = super().sent(clipped, sending)
        most = 3 * self.std * math.sqrt(sum(v.numel() for v in out.values()))
        return {k: v * min(1.0, most / max(norm(out, 2), 1e-12)) for k, v in out.items()}


class TwoDraws(Noising):
    """The sum of two independent draws, each with half of the variance."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        parts = [super(TwoDraws, self).noise(name, value, sending) for _ in range(2)]
        return (parts[0] + parts[1]) / math.sqrt(2)


class BackwardsArrays(Noising):
    """Arrays are noised from the last to the first, in double precision."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = {}
        for name in reversed(list(clipped)):
            drawn = torch.randn(clipped[name].shape, generator=sending.rng, dtype=torch.float64) * self.std
            out[name] = (clipped[name].double() + drawn).float()
        return {name: out[name] for name in clipped}


class GenerousClasses(Protection):
    """Each class's row of mean outputs has noise of its own size; the line has the least and the norm of all."""

    title = "Noise by class"
    source = "a test of the audit"
    kinds = (Kind.MEAN_LOGIT_TABLE,)
    bound, std = 1.0, 2.0

    def describe(self) -> str:
        return "mean outputs of each class clipped together, noise by class, all classes always listed"

    def apply(self, sending: Sending) -> None:
        kind = Kind.MEAN_LOGIT_TABLE
        if kind not in sending.message:
            return
        table = sending.message[kind]["table"]
        table = table * min(1.0, self.bound / max(float(table.norm()), 1e-12))
        sizes = self.std * (1 + torch.arange(len(table)) / len(table))
        drawn = torch.randn(table.shape, generator=sending.rng) * sizes[:, None]
        every = torch.ones_like(sending.message[kind]["present"])
        sending.message[kind] = {"table": table + drawn, "present": every}
        sending.protected.add(kind)
        sending.releases.append(
            Release(
                round=sending.round,
                kind=kind,
                sender=str(sending.sender),
                observers=sending.observers,
                mechanism="gaussian",
                noise_std=self.std,
                sensitivity=self.bound,
                clipped="on the whole table, before noise",
                clip_norm=self.bound,
                clip_of="update",
                derived="clip",
                source="GenerousClasses",
            )
        )


class CentralGenerous(CentralDP):
    """A mean that gets a second draw as large as the first, which its line leaves out."""

    def average(self, averaging: Averaging) -> None:
        super().average(averaging)
        std = self.config.noise_multiplier * self.config.clip_norm / averaging.expected
        averaging.model |= {
            k: v + std * torch.randn(v.shape, generator=averaging.rng)
            for k, v in averaging.model.items()
            if v.is_floating_point()
        }


class HalfOfThem(Availability):
    """A coin of its own for each client and round, as it says: false claims start from it."""

    title = "Half of the clients, they say by coins of their own"

    def coins(self, round: int, clients: Sequence[int], streams: Streams, attempt: int) -> list[int]:
        u = streams.numpy("participation", round, attempt).random(max(clients, default=-1) + 1)
        return [k for k in clients if u[k] < 0.5]

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return Participation(tuple(candidates), tuple(self.coins(round, candidates, streams, attempt)))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)

    def describe(self) -> str:
        return "each client answers with probability 0.5"
