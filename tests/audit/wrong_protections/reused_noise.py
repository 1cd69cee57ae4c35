"""Wrong: noise that is not fresh, or not a secret.

Each single message looks as it should; whoever holds two of them, or knows how they were made, subtracts.
"""

import hashlib

import torch
from torch import Tensor

from fedaudit.fl.wire.protection import Payload, Sending
from tests.audit.wrong_protections.base import Noising


def seeded(shape: torch.Size, *keys: object) -> Tensor:
    """Normal noise that these keys decide."""
    seed = int.from_bytes(hashlib.sha256(repr(keys).encode()).digest()[:7], "little")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class KeptNoise(Noising):
    """Each client draws its noise once, from its own stream, and keeps it: differences of rounds are clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        kept = self.__dict__.setdefault("_kept", {})
        key = (str(sending.sender), name)
        if key not in kept:
            kept[key] = super().noise(name, value, sending)
        found: Tensor = kept[key]
        return found


class OneForAll(Noising):
    """All clients of a round add the same noise: differences of clients are clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        kept = self.__dict__.setdefault("_kept", {})
        key = (sending.round, name)
        if key not in kept:
            kept[key] = super().noise(name, value, sending)
        found: Tensor = kept[key]
        return found


class PublicSeed(Noising):
    """The generator is seeded with the client's number and the round: anybody can compute the noise."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return seeded(value.shape, "noise", str(sending.sender), sending.round, name) * self.std


class SeedOfTheMessage(Noising):
    """Noise by a hash of the clipped update, so that a repeated message is equal: a guess can be checked."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return seeded(value.shape, name, (value * 1e3).round().sum().item()) * self.std


class Antithetic(Noising):
    """Odd rounds take back the noise of the round before ("variance reduction"): sums over rounds are clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        kept = self.__dict__.setdefault("_kept", {})
        key = (str(sending.sender), name)
        if sending.round % 2 and key in kept:
            return -kept[key]  # type: ignore[no-any-return]
        kept[key] = super().noise(name, value, sending)
        found: Tensor = kept[key]
        return found


class ZeroSum(Noising):
    """Clients 2 i and 2 i + 1 send opposite noise, which cancels in the mean: the global model has none."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        index = sending.sender.index or 0
        kept = self.__dict__.setdefault("_kept", {})
        key = (sending.round, index // 2, name)
        if key in kept:
            return -kept[key]  # type: ignore[no-any-return]
        kept[key] = super().noise(name, value, sending)
        found: Tensor = kept[key]
        return found


class SlowWalk(Noising):
    """Noise of the same size each round, of which 99 parts in 100 are last round's: not independent."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        kept = self.__dict__.setdefault("_kept", {})
        key, fresh = (str(sending.sender), name), super().noise(name, value, sending)
        kept[key] = 0.99 * kept[key] + (1 - 0.99**2) ** 0.5 * fresh if key in kept else fresh
        found: Tensor = kept[key]
        return found


class TakesBack(Noising):
    """Error feedback: last round's noise is subtracted from this round's, so that it cancels over rounds."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        kept = self.__dict__.setdefault("_kept", {})
        key, fresh = (str(sending.sender), name), super().noise(name, value, sending)
        before, kept[key] = kept.get(key), fresh
        return fresh if before is None else fresh - before


class Tiled(Noising):
    """Eight draws repeated along each array, because drawing is slow: their differences have no noise."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        few = torch.randn(8, generator=sending.rng) * self.std
        return few.repeat(value.numel() // 8 + 1)[: value.numel()].reshape(value.shape)


class NoiseTable(Noising):
    """A public table of 4096 normal numbers, read from a random offset: 4096 guesses find the noise."""

    table = torch.randn(4096, generator=torch.Generator().manual_seed(1))

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        start = int(torch.randint(len(self.table), (1,), generator=sending.rng))
        return self.table[(torch.arange(value.numel()) + start) % len(self.table)].reshape(value.shape) * self.std


class FromTheStart(Noising):
    """The generator is set back before each array, so that all arrays begin with the same numbers."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        state, out = sending.rng.get_state(), {}
        for name, value in clipped.items():
            sending.rng.set_state(state)
            out[name] = value + self.noise(name, value, sending)
        return out
