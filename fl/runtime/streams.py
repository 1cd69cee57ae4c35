"""Named random streams: every draw has its own generator, derived by hashing from one seed.

Adding an attack, a protection or a worker process moves no other stream, so paired runs stay
paired and identity tests can be bitwise. Nothing here touches a global generator.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from fedaudit.fl.runtime.cipher import NoiseGenerator, RecordCoins


class Streams:
    """`Streams(7).torch("batches", round, client)` is the same generator wherever it is drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)

    def key(self, name: str, *keys: int | str) -> int:
        """A 63-bit seed for the stream of that name; SHA-256, so near keys are unrelated."""
        text = "/".join([str(self.seed), name, *map(str, keys)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    def numpy(self, name: str, *keys: int | str) -> np.random.Generator:
        watched = _watched.get()
        if watched is None:
            return np.random.default_rng(self.key(name, *keys))
        generator = np.random.default_rng(self.key(name, *keys, *watched.salt))
        watched.opened.append(("/".join(map(str, (name, *keys))), generator))
        return generator

    def torch(self, name: str, *keys: int | str) -> "torch.Generator":
        import torch

        watched = _watched.get()
        if watched is None:
            return torch.Generator().manual_seed(self.key(name, *keys))
        generator = torch.Generator().manual_seed(self.key(name, *keys, *watched.salt))
        watched.opened.append(("/".join(map(str, (name, *keys))), generator))
        return generator

    def noise(self, name: str, *keys: int | str) -> "NoiseGenerator":
        """Cryptographic noise of that name; as secret as the seed is."""
        from fedaudit.fl.runtime.cipher import NoiseGenerator

        if (opened := _opened.get()) is not None:
            opened["/".join(map(str, (name, *keys)))] += 1
        return NoiseGenerator(self._derive_cipher_key("noise", name, *keys))

    def coins(self, name: str, *keys: int | str) -> "RecordCoins":
        """Coins of that name, each of them a record's own."""
        from fedaudit.fl.runtime.cipher import RecordCoins

        return RecordCoins(self._derive_cipher_key("coins", name, *keys))

    def _derive_cipher_key(self, *keys: int | str) -> bytes:
        """256 bits: HMAC-SHA256, so that no seed of an ordinary generator tells any of them."""
        return hmac.digest(str(self.seed).encode(), "/".join(map(str, keys)).encode(), "sha256")


@contextmanager
def seed_networks(seed: int, device: "torch.device | None" = None) -> Iterator[None]:
    """Inside, torch's global generators begin at `seed`, for layers that draw their weights from them.

    Afterwards the processor's generator, and the one of a CUDA `device` that is given, are as they were.
    """
    import torch

    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        # torch.manual_seed writes down its callers for every kind of device that is not in use: milliseconds
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield


@dataclass
class Draws:
    """Ordinary streams that were opened, and what was drawn from them; of noise and of records' coins nothing."""

    salt: tuple[str, ...] = ()  # of the streams' names: others are drawn then
    opened: "list[tuple[str, np.random.Generator | torch.Generator]]" = field(default_factory=list)

    def read_ends(self) -> tuple[tuple[str, str], ...]:
        """Each stream and a digest of where it ends: equal where as much was drawn from it."""
        return tuple((name, _digest_end(generator)) for name, generator in self.opened)


def _digest_end(generator: "np.random.Generator | torch.Generator") -> str:
    if isinstance(generator, np.random.Generator):
        return hashlib.sha256(repr(generator.bit_generator.state).encode()).hexdigest()
    return hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()


_watched: ContextVar[Draws | None] = ContextVar("watched", default=None)


@contextmanager
def watching_draws(*salt: str) -> Iterator[Draws]:
    """Inside, ordinary streams are noted; with `salt` each of them is another one than of its name."""
    draws = Draws(salt)
    token = _watched.set(draws)
    try:
        yield draws
    finally:
        _watched.reset(token)


_opened: ContextVar[Counter[str] | None] = ContextVar("opened", default=None)


@contextmanager
def counting_noise() -> Iterator[Counter[str]]:
    """Counts how often each stream of noise is opened: whoever opens one a second time knows the noise."""
    opened: Counter[str] = Counter()
    token = _opened.set(opened)
    try:
        yield opened
    finally:
        _opened.reset(token)
