"""Named random streams: every draw has its own generator, derived by hashing from one seed.

Adding an attack, a protection or a worker process moves no other stream, so paired runs stay
paired and identity tests can be bitwise. Nothing here touches a global generator.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

GENERATOR = "torch's Mersenne Twister"  # of all noise on the CPU; on CUDA it is Philox, as little of a secret


class Streams:
    """`Streams(7).torch("batches", round, client)` is the same generator wherever it is drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)

    def key(self, name: str, *keys: int | str) -> int:
        """A 63-bit seed for the stream of that name; SHA-256, so near keys are unrelated."""
        text = "/".join([str(self.seed), name, *map(str, keys)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    def numpy(self, name: str, *keys: int | str) -> np.random.Generator:
        return np.random.default_rng(self.key(name, *keys))

    def torch(self, name: str, *keys: int | str) -> "torch.Generator":
        import torch

        return torch.Generator().manual_seed(self.key(name, *keys))
