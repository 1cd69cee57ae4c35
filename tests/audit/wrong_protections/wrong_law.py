"""Wrong: noise of the declared standard deviation and another law than the ledger names.

The accountant's curve is that of the law; tails are where delta comes from.
"""

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Protection, Sending
from tests.audit.wrong_protections.base import Noising


class LaplaceCalledGaussian(Noising):
    """Laplace noise of the same variance: with many coordinates its loss grows as the L1 norm, unbounded here."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        u = 1 - torch.rand((2, *value.shape), generator=sending.rng)
        return (u[0].log() - u[1].log()) * self.std / 2**0.5


class UniformNoise(Noising):
    """Uniform noise of the same variance: outside its range a message tells who sent it for certain."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return (torch.rand(value.shape, generator=sending.rng) * 2 - 1) * self.std * 3**0.5


class CutTails(Noising):
    """Gaussian noise cut at two standard deviations, because outliers hurt: the cut tells for certain."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending).clamp(-2 * self.std, 2 * self.std)


class RarelyLarge(Noising):
    """Nine in ten draws are a third as wide and one in ten is wide: variance as declared, most near clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        wide = torch.rand(value.shape, generator=sending.rng) < 0.1
        return super().noise(name, value, sending) * torch.where(wide, 3.0, 1 / 3)


class CoinNoise(Noising):
    """Plus or minus one standard deviation, by a coin: two values a number, so it is read off."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return (torch.randint(0, 2, value.shape, generator=sending.rng) * 2 - 1) * self.std


class OneSidedCounts(Protection):
    """Counts only ever grow, so that nobody looks empty: a count below yours says you were not there."""

    title = "One-sided noise on counts"
    source = "a test of the audit"
    kinds = (Kind.NUM_EXAMPLES,)
    scale = 1.0

    def describe(self) -> str:
        return "the number of examples with whole-number noise"

    def drawn(self, sending: Sending) -> int:
        u = 1 - torch.rand((), generator=sending.rng, dtype=torch.float64)
        return int((-u.log() * self.scale).floor())

    def apply(self, sending: Sending) -> None:
        if Kind.NUM_EXAMPLES not in sending.message:
            return
        count = sending.message[Kind.NUM_EXAMPLES]["count"]
        sending.message[Kind.NUM_EXAMPLES] = {"count": count + self.drawn(sending)}
        sending.protected.add(Kind.NUM_EXAMPLES)
        sending.releases.append(
            Release(
                round=sending.round,
                kind=Kind.NUM_EXAMPLES,
                sender=str(sending.sender),
                observers=sending.observers,
                mechanism="discrete_laplace",
                noise_std=self.scale,
                sensitivity=1.0,
                unit="record",
                derived="clip",
                clip_norm=1.0,
                clip_of="record",
                clipped="one record is counted once",
                source=type(self).__name__,
            )
        )


class PlusMinusOne(OneSidedCounts):
    """Counts move by -1, 0 or 1 alike, under the name of discrete Laplace: a move by 2 is ruled out."""

    def drawn(self, sending: Sending) -> int:
        return int(torch.randint(-1, 2, (), generator=sending.rng))
