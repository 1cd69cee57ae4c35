"""Noise as a run draws it, and the many ways in which noise is wrong: functions of the right noise.

`z` are standard normal numbers [rounds, clients, numbers] of a run; a fault takes them and a generator of its own
and returns what the run adds in their place. Nothing here passes a message: only the noise is wrong.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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


def table_read_in_stretches(z: Floats, rng: np.random.Generator) -> Floats:
    table = np.random.default_rng(1).normal(size=2**14)
    starts = rng.integers(len(table), size=z.shape[:2])
    return np.asarray(table[(starts[:, :, None] + np.arange(z.shape[2])) % len(table)])


def array_in_another(z: Floats, rng: np.random.Generator) -> Floats:
    """The generator is set back before each array, so that all begin with the same numbers."""
    z[:, :, 10:20] = z[:, :, :10]
    return z


def household(z: Floats, rng: np.random.Generator) -> Floats:
    """Two clients toss one coin, and half of the rounds send the same noise."""
    same = rng.random(len(z)) < 0.5
    z[same, 1] = z[same, 0]
    return z


def household_of_sizes(z: Floats, rng: np.random.Generator) -> Floats:
    z[:, 4] = np.abs(z[:, 2]) * rng.choice((-1.0, 1.0), z[:, 4].shape)
    return z


def one_in_clear(z: Floats, rng: np.random.Generator) -> Floats:
    z[5, 3] = 0
    return z


def one_array_once_in_clear(z: Floats, rng: np.random.Generator) -> Floats:
    z[9, 2, : SIZES["head.bias"]] = 0
    return z


def coin_for_a_quiet_number(z: Floats, rng: np.random.Generator) -> Floats:
    return z * np.where(rng.random(z.shape) < 0.1, 3.0, 1 / 3)


def laplace(z: Floats, rng: np.random.Generator) -> Floats:
    return np.asarray(rng.laplace(size=z.shape) / np.sqrt(2))


def uniform_for_one_client(z: Floats, rng: np.random.Generator) -> Floats:
    z[:, 3] = rng.uniform(-1, 1, z[:, 3].shape) * np.sqrt(3)
    return z


def cut(z: Floats, rng: np.random.Generator) -> Floats:
    return z.clip(-2.5, 2.5)


def one_sided(z: Floats, rng: np.random.Generator) -> Floats:
    return np.abs(z)


FAULTS: dict[str, tuple[Fault, str]] = {
    "nine tenths everywhere": (_scaled(np.s_[:], 0.9), "amount of noise"),
    "a tenth in rounds 8 to 10": (_scaled(np.s_[8:11], 0.1), "amount of noise"),
    "less for one client": (_scaled(np.s_[:, 3], 0.7), "amount of noise"),
    "less for one client in one round": (_scaled(np.s_[6, 3], 0.6), "amount of noise"),
    "less on one array of one client": (_scaled(np.s_[:, 4, :10], 0.3), "amount of noise"),
    "less on one number": (_scaled(np.s_[:, :, 77], 0.3), "amount of noise"),
    "one message in clear": (one_in_clear, "amount of noise"),
    "one array of one message in clear": (one_array_once_in_clear, "amount of noise"),
    "a table read in stretches": (table_read_in_stretches, "noise used twice"),
    "a message again": (_copy((2, 3), (9, 1)), "noise used twice"),
    "a message with the other sign": (_copy((2, 3), (9, 1), np.negative), "noise used twice"),
    "a message shifted": (_copy((2, 3), (9, 1), lambda x: np.roll(x, 100)), "noise used twice"),
    "an array again in another one": (array_in_another, "noise used twice"),
    "a household's coin": (household, "noise used twice"),
    "a household's sizes": (household_of_sizes, "noise used twice"),
    "mostly small": (coin_for_a_quiet_number, "amount of noise"),
    "Laplace": (laplace, "amount of noise"),
    "uniform for one client": (uniform_for_one_client, "amount of noise"),
    "cut tails": (cut, "amount of noise"),
    "one-sided": (one_sided, "amount of noise"),
}
