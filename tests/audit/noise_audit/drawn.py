"""Noise as a run draws it, and the many ways in which noise is wrong: functions of the right noise.

`z` are standard normal numbers [rounds, clients, numbers] of a run; a fault takes them and a generator of its own
and returns what the run adds in their place. Nothing here passes a message: only the noise is wrong.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct

from fedaudit.audit.noise_audit.noise_samples import NoiseSample
from fedaudit.fl.ledger import Mechanism, Release

Floats = NDArray[np.float64]
Fault = Callable[[Floats, np.random.Generator], Floats]
ROUNDS, CLIENTS, SIZES = 12, 6, {"head.bias": 10, "head.weight": 640}
STD, CLIP = 1.5, 1.0


def line_of(
    round: int,
    client: int,
    *,
    kind: str = "local_model",
    mechanism: Mechanism = "gaussian",
    std: float = STD,
    resolution: float = 0.0,
) -> Release:
    return Release(
        round=round,
        kind=kind,
        sender=f"client/{client}",
        observers=("server",),
        mechanism=mechanism,
        noise_std=std,
        sensitivity=CLIP,
        resolution=resolution,
    )


def normal(seed: int, rounds: int = ROUNDS, clients: int = CLIENTS, numbers: int | None = None) -> Floats:
    many = sum(SIZES.values()) if numbers is None else numbers
    return np.random.default_rng((seed, 7)).normal(size=(rounds, clients, many))


def samples_of(z: Floats, kind: str = "local_model", carried: bool = True) -> list[NoiseSample]:
    """Noise [rounds, clients, numbers] as it is read off messages: in single precision, on clipped values."""
    sizes = SIZES if z.shape[2] == sum(SIZES.values()) else {"values": z.shape[2]}
    clean = np.random.default_rng(99).normal(size=z.shape).astype(np.float32) * np.float32(0.05)
    noised = clean + (z * STD).astype(np.float32)
    values = noised.astype(np.float64) - clean if carried else z * STD
    found = []
    for t, of_round in enumerate(values):
        for k, own in enumerate(of_round):
            start = 0
            for name, size in sizes.items():
                found.append(NoiseSample(line_of(t, k, kind=kind), name, own[start : start + size]))
                start += size
    return found


def _copy(of: tuple[int, int], to: tuple[int, int], change: Callable[[Floats], Floats] = lambda x: x) -> Fault:
    def fault(z: Floats, rng: np.random.Generator) -> Floats:
        z[to] = change(z[of])
        return z

    return fault


def _scaled(where: object, factor: float) -> Fault:
    def fault(z: Floats, rng: np.random.Generator) -> Floats:
        z[where] *= factor  # type: ignore[index]
        return z

    return fault


def _table(many: int) -> Fault:
    def fault(z: Floats, rng: np.random.Generator) -> Floats:
        table = np.random.default_rng(1).normal(size=many)
        return np.asarray(table[rng.integers(many, size=z.shape)])

    return fault


def table_with_signs(z: Floats, rng: np.random.Generator) -> Floats:
    return _table(2**17)(z, rng) * rng.choice((-1.0, 1.0), z.shape)


def table_read_in_stretches(z: Floats, rng: np.random.Generator) -> Floats:
    table = np.random.default_rng(1).normal(size=2**14)
    starts = rng.integers(len(table), size=z.shape[:2])
    return np.asarray(table[(starts[:, :, None] + np.arange(z.shape[2])) % len(table)])


def _mixed(share: float, of: Callable[[Floats], Floats]) -> Fault:
    """A share of the variance is other noise of the run, the rest is fresh."""
    return lambda z, rng: np.sqrt(1 - share) * z + np.sqrt(share) * of(z)


def household(z: Floats, rng: np.random.Generator) -> Floats:
    """Two clients toss one coin, and half of the rounds send the same noise."""
    same = rng.random(len(z)) < 0.5
    z[same, 1] = z[same, 0]
    return z


def household_of_signs(z: Floats, rng: np.random.Generator) -> Floats:
    """Two clients toss one coin for the sign of every number."""
    z[:, 1] = np.abs(z[:, 1]) * np.sign(z[:, 0])
    return z


def household_of_sizes(z: Floats, rng: np.random.Generator) -> Floats:
    z[:, 4] = np.abs(z[:, 2]) * rng.choice((-1.0, 1.0), z[:, 4].shape)
    return z


def slow_walk(z: Floats, rng: np.random.Generator) -> Floats:
    for t in range(1, len(z)):
        z[t] = 0.9 * z[t - 1] + np.sqrt(1 - 0.81) * z[t]
    return z


def echo_after_seven_rounds(z: Floats, rng: np.random.Generator) -> Floats:
    z[7:] = 0.6 * z[:-7] + 0.8 * z[7:]
    return z


def takes_back(z: Floats, rng: np.random.Generator) -> Floats:
    return np.concatenate([z[:1], z[1:] - z[:-1]])


def low_rank(z: Floats, rng: np.random.Generator) -> Floats:
    mix = np.random.default_rng(5).normal(size=(40, z.shape[2]))
    return np.asarray(rng.normal(size=(*z.shape[:2], 40)) @ mix / np.sqrt(40))


def fixed_length(z: Floats, rng: np.random.Generator) -> Floats:
    return z * np.sqrt(z.shape[2]) / np.linalg.norm(z, axis=2, keepdims=True)


def one_in_clear(z: Floats, rng: np.random.Generator) -> Floats:
    z[5, 3] = 0
    return z


def one_array_once_in_clear(z: Floats, rng: np.random.Generator) -> Floats:
    z[9, 2, : SIZES["head.bias"]] = 0
    return z


def one_number_of_each(z: Floats, rng: np.random.Generator) -> Floats:
    """Another number of every message is in clear."""
    np.put_along_axis(z, rng.integers(z.shape[2], size=(*z.shape[:2], 20)), 0, axis=2)
    return z


def coin_for_a_quiet_number(z: Floats, rng: np.random.Generator) -> Floats:
    return z * np.where(rng.random(z.shape) < 0.1, 3.0, 1 / 3)


def laplace(z: Floats, rng: np.random.Generator) -> Floats:
    return np.asarray(rng.laplace(size=z.shape) / np.sqrt(2))


def uniform_for_one_client(z: Floats, rng: np.random.Generator) -> Floats:
    z[:, 3] = rng.uniform(-1, 1, z[:, 3].shape) * np.sqrt(3)
    return z


def twelve_uniforms(z: Floats, rng: np.random.Generator) -> Floats:
    return np.asarray(rng.random((12, *z.shape)).sum(0) - 6)


def cut(z: Floats, rng: np.random.Generator) -> Floats:
    return z.clip(-2.5, 2.5)


def one_sided(z: Floats, rng: np.random.Generator) -> Floats:
    return np.abs(z)


def _seeds(bits: int, per_round: bool = False) -> Fault:
    """Each message's arrays are drawn by torch with a seed of so many bits."""

    def fault(z: Floats, rng: np.random.Generator) -> Floats:
        for t in range(len(z)):
            for k in range(z.shape[1]):
                own = torch.Generator().manual_seed(int(rng.integers(2**bits)))
                start = 0
                for size in sorted(SIZES.values(), reverse=True):
                    drawn = torch.randn(size, generator=own).double().numpy()
                    place = slice(SIZES["head.bias"], None) if start == 0 else slice(0, SIZES["head.bias"])
                    z[t, k, place] = drawn
                    start += size
        return z

    return fault


def half_precision(z: Floats, rng: np.random.Generator) -> Floats:
    return z.astype(np.float16).astype(np.float64)


def turned(z: Floats, rng: np.random.Generator) -> Floats:
    """All clients of a round have the noise of the first, each turned by a rotation of its own."""
    for k in range(1, z.shape[1]):
        z[:, k] = dct(z[:, 0] * rng.choice((-1.0, 1.0), z.shape[2]), norm="ortho", axis=1)
    return z


FAULTS: dict[str, tuple[Fault, str]] = {
    "nine tenths everywhere": (_scaled(np.s_[:], 0.9), "amount of noise"),
    "a tenth in rounds 8 to 10": (_scaled(np.s_[8:11], 0.1), "amount of noise"),
    "less for one client": (_scaled(np.s_[:, 3], 0.7), "amount of noise"),
    "less for one client in one round": (_scaled(np.s_[6, 3], 0.6), "amount of noise"),
    "less on one array of one client": (_scaled(np.s_[:, 4, :10], 0.3), "amount of noise"),
    "less on one number": (_scaled(np.s_[:, :, 77], 0.3), "amount of noise"),
    "one message in clear": (one_in_clear, "amount of noise"),
    "one array of one message in clear": (one_array_once_in_clear, "amount of noise"),
    "numbers of each message in clear": (one_number_of_each, "distinct values of noise"),
    "a table of 2^18 values": (_table(2**18), "distinct values of noise"),
    "a table of 2^17 values and signs": (table_with_signs, "distinct values of noise"),
    "a table read in stretches": (table_read_in_stretches, "noise used twice"),
    "seeds of 20 bits": (_seeds(20), "short seeds"),
    "seeds of 10 bits": (_seeds(10), "short seeds"),
    "a message again": (_copy((2, 3), (9, 1)), "noise used twice"),
    "a message with the other sign": (_copy((2, 3), (9, 1), np.negative), "noise used twice"),
    "a message at another scale": (_copy((2, 3), (9, 1), lambda x: 1.7 * x), "noise used twice"),
    "a message backwards": (_copy((2, 3), (9, 1), lambda x: x[::-1].copy()), "noise used twice"),
    "a message backwards at another scale": (_copy((2, 3), (9, 1), lambda x: -1.3 * x[::-1]), "noise used twice"),
    "a message shuffled": (_copy((2, 3), (9, 1), lambda x: np.sort(x)), "noise used twice"),
    "a message shuffled at another scale": (
        _copy((2, 3), (9, 1), lambda x: -1.3 * np.sort(x)),
        "noise used twice",
    ),
    "a message shifted": (_copy((2, 3), (9, 1), lambda x: np.roll(x, 100)), "noise used twice"),
    "a household's coin": (household, "noise used twice"),
    "a household's signs": (household_of_signs, "independence of senders and rounds"),
    "a household's sizes": (household_of_sizes, "noise used twice"),
    "a fifth of a neighbour's": (_mixed(0.2, lambda z: np.roll(z, 1, 1)), "independence of senders and rounds"),
    "a tenth of two rounds ago": (_mixed(0.1, lambda z: np.roll(z, 2, 0)), "independence of senders and rounds"),
    "a neighbour's of three rounds ago": (
        _mixed(0.3, lambda z: np.roll(z, (3, 2), (0, 1))),
        "independence of senders and rounds",
    ),
    "half of another message, shifted": (
        _mixed(0.5, lambda z: np.roll(z, (1, 37), (1, 2))),
        "independence of messages",
    ),
    "a slow walk": (slow_walk, "independence of senders and rounds"),
    "an echo after seven rounds": (echo_after_seven_rounds, "independence of senders and rounds"),
    "error feedback": (takes_back, "independence of senders and rounds"),
    "a neighbouring number's": (_mixed(0.1, lambda z: np.roll(z, 1, 2)), "independence within messages"),
    "a number's 300 places away": (_mixed(0.1, lambda z: np.roll(z, 300, 2)), "independence within messages"),
    "one draw for all numbers": (_mixed(0.02, lambda z: z[:, :, :1] + 0 * z), "sums of noise"),
    "rank forty": (low_rank, "rank of the noise"),
    "one draw a round, rotated": (turned, "lengths of noise"),
    "a fixed length": (fixed_length, "lengths of noise"),
    "mostly small": (coin_for_a_quiet_number, "law of the noise"),
    "Laplace": (laplace, "law of the noise"),
    "uniform for one client": (uniform_for_one_client, "law of the noise"),
    "twelve uniforms": (twelve_uniforms, "law of the noise"),
    "cut tails": (cut, "tails of the noise"),
    "one-sided": (one_sided, "law of the noise"),
    "half precision": (half_precision, "precision of the noise"),
}
