"""Mechanisms that are right by a proof, and others of which nobody can tell; written before the check."""

import math
import os
import random
import secrets

import numpy as np
import torch

from tests.audit.mechanism.wrong_mechanisms import (
    Z4,
    Filter,
    Mechanism,
    Update,
    add_noise,
    clip_to,
    norm,
    open_kernel,
)

Z4_TEN = 3.4189339638  # for ten calls: Z4 * sqrt(10)


def make_numpy() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4)


def make_generator() -> Filter:
    rng = np.random.default_rng()
    return lambda u: add_noise(clip_to(u), Z4, rng)


def make_torch() -> Filter:
    return lambda u: {k: v + torch.normal(0.0, Z4, v.shape).numpy() for k, v in clip_to(u).items()}


def make_own_torch_generator() -> Filter:
    generator = torch.Generator()
    generator.seed()
    return lambda u: {
        k: v + (torch.randn(v.shape, generator=generator) * Z4).numpy() for k, v in clip_to(u).items()
    }


def make_key_of_the_system() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4, np.random.Generator(np.random.Philox(secrets.randbits(128))))


def make_unreached() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4, open_kernel())


def make_box_muller() -> Filter:
    def f(u: Update) -> Update:
        return {
            k: v + Z4 * np.array([random.gauss(0, 1) for _ in range(v.size)]).reshape(v.shape)
            for k, v in clip_to(u).items()
        }

    return f


def make_each_layer_by_its_share() -> Filter:
    def f(u: Update) -> Update:
        share = 1 / math.sqrt(len(u))
        return add_noise({k: v for name, w in u.items() for k, v in clip_to({name: w}, share).items()}, Z4)

    return f


CLIPS = {"conv.weight": 0.8, "conv.bias": 0.1, "fc.weight": 0.5, "fc.bias": math.sqrt(0.1)}  # together 1


def make_noise_by_the_clip_of_a_layer() -> Filter:
    """Every array is clipped and noised on its own, each in a quarter of the budget."""
    return lambda u: {
        name: add_noise(clip_to({name: w}, CLIPS[name]), 2 * CLIPS[name] * Z4)[name] for name, w in u.items()
    }


def make_laplace() -> Filter:
    def f(u: Update) -> Update:
        size = sum(float(np.abs(v).sum()) for v in u.values())
        factor = min(1.0, 1 / (size or 1.0))
        return {k: v * factor + np.random.laplace(0, 1 / 4, v.shape) for k, v in u.items()}

    return f


def make_half_precision_after() -> Filter:
    return lambda u: {k: v.astype(np.float16) for k, v in add_noise(clip_to(u), Z4).items()}


def make_largest_after() -> Filter:
    def f(u: Update) -> Update:
        u = add_noise(clip_to(u), Z4)
        least = np.sort(np.concatenate([np.abs(v).ravel() for v in u.values()]))[-80]
        return {k: np.where(np.abs(v) >= least, v, 0) for k, v in u.items()}

    return f


def make_clip_again_after() -> Filter:
    return lambda u: clip_to(add_noise(clip_to(u), Z4), 10.0)


def make_modulus_after() -> Filter:
    return lambda u: {k: np.mod(v, 4.0) for k, v in add_noise(clip_to(u), Z4).items()}


def make_integers_after() -> Filter:
    return lambda u: {k: np.rint(v * 8).astype(np.int64) for k, v in add_noise(clip_to(u), Z4).items()}


def make_more_noise() -> Filter:
    return lambda u: add_noise(clip_to(u), 1.5 * Z4)


def make_refusal_of_what_is_not_finite() -> Filter:
    def f(u: Update) -> Update:
        if not all(np.isfinite(v).all() for v in u.values()):
            raise ValueError("not finite")
        return add_noise(clip_to(u), Z4)

    return f


def make_replaced() -> Filter:
    return lambda u: add_noise(clip_to(u), 2 * Z4)


def make_length_one() -> Filter:
    """Every update is made as long as the clip, the short ones too."""

    def f(u: Update) -> Update:
        return add_noise({k: v / (norm(u) or 1.0) for k, v in u.items()}, Z4)

    return f


def make_ten_calls() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4_TEN)


def make_inverse_of_numbers_of_the_system() -> Filter:
    from scipy import special

    def f(u: Update) -> Update:
        out = {}
        for k, v in clip_to(u).items():
            words = np.frombuffer(os.urandom(8 * v.size), np.uint64).reshape(v.shape)
            out[k] = v + Z4 * special.ndtri((words.astype(np.float64) + 0.5) / 2.0**64)
        return out

    return f


RIGHT = {
    "numpy": Mechanism(make=make_numpy),
    "generator": Mechanism(make=make_generator),
    "torch": Mechanism(make=make_torch),
    "own torch generator": Mechanism(make=make_own_torch_generator),
    "key of the system": Mechanism(make=make_key_of_the_system),
    "unreached": Mechanism(make=make_unreached),
    "Box and Muller": Mechanism(make=make_box_muller),
    "each layer by its share": Mechanism(make=make_each_layer_by_its_share),
    "noise by the clip of a layer": Mechanism(make=make_noise_by_the_clip_of_a_layer),
    "laplace": Mechanism(make=make_laplace, delta=0.0),
    "half precision after": Mechanism(make=make_half_precision_after),
    "largest after": Mechanism(make=make_largest_after),
    "clip again after": Mechanism(make=make_clip_again_after),
    "modulus after": Mechanism(make=make_modulus_after),
    "integers after": Mechanism(make=make_integers_after),
    "more noise": Mechanism(make=make_more_noise),
    "refusal of what is not finite": Mechanism(make=make_refusal_of_what_is_not_finite),
    "replaced": Mechanism(make=make_replaced, neighbours="replace"),
    "length one": Mechanism(make=make_length_one),
    "ten calls": Mechanism(make=make_ten_calls, rounds=10),
    "inverse of numbers of the system": Mechanism(make=make_inverse_of_numbers_of_the_system),
}


# Of which no law test may speak ---------------------------------------------------------------


def make_discrete_gaussian() -> Filter:
    """Integers of 1/64, with noise of the discrete Gaussian of the same deviation."""
    grid = 64
    sigma = Z4 * grid * 1.3  # for what rounding adds to the norm of 812 numbers: sqrt(812) / 2 / 64
    numbers = np.arange(-int(12 * sigma), int(12 * sigma) + 1)
    chances = np.exp(-(numbers**2) / (2 * sigma**2))
    chances /= chances.sum()

    def f(u: Update) -> Update:
        return {
            k: (np.rint(v * grid) + np.random.choice(numbers, v.shape, p=chances)) / grid
            for k, v in clip_to(u).items()
        }

    return f


def make_correlated_noise() -> Filter:
    """Each call takes half of the noise of the call before off again, as matrix mechanisms do."""
    before: Update = {}

    def f(u: Update) -> Update:
        out = {}
        for k, v in clip_to(u).items():
            fresh = np.random.normal(0, 2 * Z4, v.shape)
            out[k] = v + fresh - 0.5 * before.get(k, np.zeros(v.shape))
            before[k] = fresh
        return out

    return f


UNTOLD = {
    "discrete gaussian": Mechanism(make=make_discrete_gaussian),
    "correlated noise": Mechanism(make=make_correlated_noise),
}
