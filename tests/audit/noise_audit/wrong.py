"""Noise that is wrong in ways that show only in a run's own shape, over its rounds, clients and kinds.

Every class differs from DPGaussian in what it does, never in what its ledger says of it.
"""

import dataclasses
import hashlib
import math

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.wire.noising import base_of, change, norm, rebuild
from fedaudit.fl.wire.protection import Payload, Sending

CLIP, Z = 1.0, 1.5
KINDS = (Kind.LOCAL_MODEL, Kind.LOCAL_PROTOTYPES)


class Wrong(DPGaussian):
    """Correct, in steps that a fault can replace."""

    kind: Kind
    sending: Sending

    def apply(self, sending: Sending) -> None:
        self.sending = sending
        for kind in self.config.kinds:
            if kind in sending.message:
                self.kind = kind
                payload, base = sending.message[kind], base_of(kind, sending.reference)
                moved = self.noised(self.clipped(change(payload, base)))
                sending.message[kind] = rebuild(payload, base, moved)
                sending.protected.add(kind)
                sending.releases += self._releases(kind, sending)

    def clipped(self, arrays: Payload) -> Payload:
        factor = min(1.0, CLIP / max(norm(arrays, 2), 1e-12))
        return {k: v * factor for k, v in arrays.items()}

    def noised(self, arrays: Payload) -> Payload:
        rng = self.generator()
        return {k: v + self.draw(v, rng) * self.spread(k, v) for k, v in arrays.items()}

    def generator(self) -> torch.Generator:
        return self.sending.rng

    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        return torch.randn(v.shape, generator=rng)

    def spread(self, name: str, v: Tensor) -> float:
        return CLIP * Z


class Seeded(Wrong):
    def seed(self) -> int:
        raise NotImplementedError

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed())


class SeedOfRoundAndClient(Seeded):
    def seed(self) -> int:
        return 1000 * self.sending.round + int(self.sending.sender.index or 0) + 77 * KINDS.index(self.kind)


class SeedOfTheMessage(Seeded):
    def seed(self) -> int:
        text = f"{self.sending.round} {self.sending.sender} {self.kind}"
        text += " ".join(f"{float(v.double().sum())}" for v in self.sending.message[self.kind].values())
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


class ClipPerTensor(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        return {k: v * min(1.0, CLIP / max(float(v.norm()), 1e-12)) for k, v in arrays.items()}


class ClipPerRow(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        if self.kind != Kind.LOCAL_PROTOTYPES:
            return super().clipped(arrays)
        return {
            k: v * (CLIP / v.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1) for k, v in arrays.items()
        }


class ClipOfLargeTensorsOnly(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        large = super().clipped({k: v for k, v in arrays.items() if v.dim() > 1})
        return arrays | large


class ClipOfTheModelNotOfItsChange(Wrong):
    """The norm of what is sent, and not of what changed."""

    def clipped(self, arrays: Payload) -> Payload:
        sent = norm({k: v for k, v in self.sending.message[self.kind].items() if v.is_floating_point()}, 2)
        reached = norm(arrays, 2)
        return super().clipped(arrays) if sent > CLIP and reached < 50 else arrays


class ClipInEveryNumber(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        return {k: v.clamp(-CLIP, CLIP) for k, v in arrays.items()}


class ClipFromTheSecondRound(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        return super().clipped(arrays) if self.sending.round < 8 else arrays


class NoClipForOneClient(Wrong):
    def clipped(self, arrays: Payload) -> Payload:
        return arrays if self.sending.sender.index == 4 else super().clipped(arrays)


class WeightedByExamples(Wrong):
    """Clipped, and then weighted by how many examples there are."""

    def clipped(self, arrays: Payload) -> Payload:
        n = int(self.sending.message[Kind.NUM_EXAMPLES]["count"])
        return {k: v * (n / 1000) for k, v in super().clipped(arrays).items()}


class ClipAfterTheNoise(Wrong):
    def noised(self, arrays: Payload) -> Payload:
        return self.clipped(super().noised(arrays))


class EveryFifthRoundAgain(Seeded):
    def seed(self) -> int:
        rng, client = self.sending.rng.initial_seed(), int(self.sending.sender.index or 0)
        self.first = getattr(self, "first", {})
        return self.first.setdefault((self.sending.round % 5, client, self.kind), rng % 10**9 + len(self.kind))


class NeighboursShare(Seeded):
    """A client's noise is what another client had two rounds before."""

    def seed(self) -> int:
        place = int(self.sending.sender.index or 0) + 2 * self.sending.round
        self.first = getattr(self, "first", {})
        start = self.sending.rng.initial_seed() % 10**9
        return self.first.setdefault((place, self.kind), start + len(self.kind))


class OneVectorForTwoKinds(Seeded):
    def seed(self) -> int:
        return self.sending.rng.initial_seed()


class SameInEveryRow(Wrong):
    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        row = torch.randn(v.shape[1:] if v.dim() > 1 else v.shape, generator=rng)
        return row.expand(v.shape)


class SmallerInLateRounds(Wrong):
    def spread(self, name: str, v: Tensor) -> float:
        return CLIP * Z * (0.6 if self.sending.round >= 10 else 1.0)


class SmallerForOneClient(Wrong):
    def spread(self, name: str, v: Tensor) -> float:
        return CLIP * Z * (0.7 if self.sending.sender.index == 3 else 1.0)


class OneTensorBare(Wrong):
    def spread(self, name: str, v: Tensor) -> float:
        return 0.0 if name.endswith("bias") else CLIP * Z


class EveryThirdNumberBare(Wrong):
    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        noise = torch.randn(v.shape, generator=rng).flatten()
        noise[::3] = 0
        return noise.reshape(v.shape)


class SometimesNothing(Wrong):
    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        there = float(torch.rand((), generator=rng) > 0.05)
        return torch.randn(v.shape, generator=rng) * there


class Truncated(Wrong):
    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        return torch.randn(v.shape, generator=rng).clamp(-3, 3)


class Uniform(Wrong):
    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        return (torch.rand(v.shape, generator=rng) - 0.5) * math.sqrt(12)


class OfLowRank(Wrong):
    """Forty secret numbers, mixed into as many as are needed."""

    def draw(self, v: Tensor, rng: torch.Generator) -> Tensor:
        known = torch.Generator().manual_seed(5)
        return torch.randn((v.numel(), 40), generator=known).matmul(torch.randn(40, generator=rng)).reshape(
            v.shape
        ) / math.sqrt(40)


class CancelsOverRounds(Wrong):
    """What is added in one round is taken away in the next."""

    def noised(self, arrays: Payload) -> Payload:
        fresh = {k: torch.randn(v.shape, generator=self.sending.rng) for k, v in arrays.items()}
        place = (self.sending.sender.index, self.kind)
        self.before = getattr(self, "before", {})
        last = self.before.get(place, {k: torch.zeros_like(v) for k, v in fresh.items()})
        self.before[place] = fresh
        return {k: v + CLIP * Z * (fresh[k] - last[k]) / math.sqrt(2) for k, v in arrays.items()}


class InProportionToTheNorm(Wrong):
    def noised(self, arrays: Payload) -> Payload:
        share = 0.5 + min(1.0, norm(arrays, 2))
        return {
            k: v + torch.randn(v.shape, generator=self.sending.rng) * CLIP * Z * share for k, v in arrays.items()
        }


class InProportionToTheExamples(Wrong):
    def spread(self, name: str, v: Tensor) -> float:
        n = int(self.sending.message[Kind.NUM_EXAMPLES]["count"])
        return CLIP * Z * (1 if n >= 1000 else 0.1)


class SensitivityHalved(Wrong):
    def _releases(self, kind, sending):  # type: ignore[no-untyped-def]
        said = super()._releases(kind, sending)
        return [dataclasses.replace(r, sensitivity=CLIP / 2) if r.mechanism != "none" else r for r in said]


class AdjacencyMistaken(Wrong):
    """Says that one client may be replaced, at the sensitivity of one more."""

    def _releases(self, kind, sending):  # type: ignore[no-untyped-def]
        said = super()._releases(kind, sending)
        return [dataclasses.replace(r, adjacency="replace_one") if r.mechanism != "none" else r for r in said]


class ListsOneKind(Wrong):
    def _releases(self, kind, sending):  # type: ignore[no-untyped-def]
        return super()._releases(kind, sending) if kind == Kind.LOCAL_MODEL else []


class SendsItsSeed(Wrong):
    def apply(self, sending: Sending) -> None:
        seed = torch.tensor(sending.rng.initial_seed())
        super().apply(sending)
        sending.message[Kind.LOCAL_MODEL] = sending.message[Kind.LOCAL_MODEL] | {"seed": seed}
