"""Mechanisms that are wrong, each with its claim and the questions that should name it; written before the check.

Every `make_...` returns a function of one update {name: array}, as the author of a filter would write it.
Where nothing else is said, the update should be clipped to a norm of 1 and get the Gaussian noise that epsilon 4
at delta 1e-5 needs for an update that is removed.
"""

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

Update = dict[str, np.ndarray]
Filter = Callable[[Update], Update]

Z4 = 1.0811618496  # noise multiplier of (4, 1e-5), by the exact formula
Z1 = 3.7306316349  # of (1, 1e-5)


def draw_update() -> Update:
    """An update of 812 numbers in four arrays, as a small network has it."""
    rng = np.random.default_rng(11)
    shapes = {"conv.weight": (6, 1, 5, 5), "conv.bias": (6,), "fc.weight": (16, 40), "fc.bias": (16,)}
    return {name: rng.normal(0, 0.02, shape).astype(np.float32) for name, shape in shapes.items()}


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One mechanism and what its author claims of it."""

    make: Callable[[], Filter]
    questions: str = ""  # digits of the questions of which one has to name it
    clip: float = 1.0
    epsilon: float = 4.0
    delta: float = 1e-5
    neighbours: str = "remove"
    rounds: int = 1
    like: Callable[[], Update] = field(default=draw_update)


def norm(u: Update) -> float:
    return math.sqrt(sum(float((v.astype(np.float64) ** 2).sum()) for v in u.values()))


def clip_to(u: Update, clip: float = 1.0) -> Update:
    factor = min(1.0, clip / (norm(u) or 1.0))
    return {k: v * factor for k, v in u.items()}


def add_noise(u: Update, sigma: float, rng: np.random.Generator | None = None) -> Update:
    draw = rng.normal if rng else np.random.normal
    return {k: v + draw(0, sigma, v.shape) for k, v in u.items()}


def open_kernel() -> np.random.Generator:
    """A generator with a seed of the kernel, which no library hands over."""
    with open("/dev/urandom", "rb") as file:
        return np.random.default_rng(int.from_bytes(file.read(32)))


# No noise, or noise that is not fresh ---------------------------------------------------------


def make_no_noise() -> Filter:
    return clip_to


def make_noise_on_a_copy() -> Filter:
    def f(u: Update) -> Update:
        u = clip_to(u)
        for v in u.values():
            noised = v.copy()
            noised += np.random.normal(0, Z4, v.shape).astype(v.dtype)
        return u

    return f


def make_percentile() -> Filter:
    """Values beyond the percentile are cut, small ones are not sent: no noise at all."""

    def f(u: Update) -> Update:
        flat = np.concatenate([np.abs(v).ravel() for v in u.values()])
        low = np.percentile(flat, 90)
        return {k: np.clip(np.where(np.abs(v) > low, v, 0), -0.01, 0.01) for k, v in u.items()}

    return f


def make_seed_zero() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4, np.random.default_rng(0))


def make_torch_seed() -> Filter:
    def f(u: Update) -> Update:
        torch.manual_seed(42)
        return {k: v + (torch.randn(v.shape) * Z4).numpy() for k, v in clip_to(u).items()}

    return f


def make_seed_in_the_constructor() -> Filter:
    rng = np.random.default_rng(2024)
    return lambda u: add_noise(clip_to(u), Z4, rng)


def make_seed_of_the_round() -> Filter:
    calls = iter(range(10**9))
    return lambda u: add_noise(clip_to(u), Z4, np.random.default_rng(next(calls)))


def make_drawn_once() -> Filter:
    kept: Update = {}

    def f(u: Update) -> Update:
        if not kept:
            kept.update({k: np.random.normal(0, Z4, v.shape) for k, v in u.items()})
        return {k: v + kept[k] for k, v in clip_to(u).items()}

    return f


def make_seed_of_the_clock() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4, np.random.default_rng(int(time.time())))


def make_seed_of_the_update() -> Filter:
    def f(u: Update) -> Update:
        digest = zlib.crc32(b"".join(v.tobytes() for v in u.values()))
        return add_noise(clip_to(u), Z4, np.random.default_rng(digest))

    return f


# How far an update moves the release ----------------------------------------------------------


def make_no_clip() -> Filter:
    return lambda u: add_noise(u, Z4)


def make_last_layer_not_clipped() -> Filter:
    def f(u: Update) -> Update:
        rest = {k: v for k, v in u.items() if k != "fc.bias"}
        return add_noise({**clip_to(rest), "fc.bias": u["fc.bias"]}, Z4)

    return f


def make_bias_out_of_the_norm() -> Filter:
    def f(u: Update) -> Update:
        factor = min(1.0, 1.0 / (norm({k: v for k, v in u.items() if "bias" not in k}) or 1.0))
        return add_noise({k: v * factor for k, v in u.items()}, Z4)

    return f


def make_each_layer_clipped() -> Filter:
    return lambda u: add_noise({k: v for name, w in u.items() for k, v in clip_to({name: w}).items()}, Z4)


def make_each_number_clipped() -> Filter:
    return lambda u: add_noise({k: np.clip(v, -1, 1) for k, v in u.items()}, Z4)


def make_root_mean_square_clipped() -> Filter:
    def f(u: Update) -> Update:
        rms = norm(u) / math.sqrt(sum(v.size for v in u.values()))
        return add_noise({k: v * min(1.0, 1.0 / (rms or 1.0)) for k, v in u.items()}, Z4)

    return f


def make_upside_down_clip() -> Filter:
    return lambda u: add_noise({k: v * max(1.0, 1.0 / (norm(u) or 1.0)) for k, v in u.items()}, Z4)


def make_square_without_root() -> Filter:
    """Compares the square of the norm with a clip of 0.1."""
    return lambda u: add_noise({k: v * min(1.0, 0.1 / (norm(u) ** 2 or 1.0)) for k, v in u.items()}, 0.1 * Z4)


def make_clip_a_tenth_too_large() -> Filter:
    return lambda u: add_noise(clip_to(u, 1.1), Z4)


def make_replaced_counted_as_removed() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4)


def make_norm_beside_the_update() -> Filter:
    def f(u: Update) -> Update:
        return {**add_noise(clip_to(u), Z4), "norm": np.array(norm(u))}

    return f


def make_unreached_without_clip() -> Filter:
    return lambda u: add_noise(u, Z4, open_kernel())


# Noise that follows the data ------------------------------------------------------------------


def make_layer_without_noise() -> Filter:
    return lambda u: {k: v if k == "conv.bias" else add_noise({k: v}, Z4)[k] for k, v in clip_to(u).items()}


def make_half_of_the_numbers_without_noise() -> Filter:
    def f(u: Update) -> Update:
        out = {}
        for k, v in clip_to(u).items():
            noise = np.random.normal(0, Z4, v.shape)
            noise.ravel()[v.size // 2 :] = 0
            out[k] = v + noise
        return out

    return f


def make_noise_where_it_is_not_zero() -> Filter:
    return lambda u: {k: v + np.random.normal(0, Z4, v.shape) * (v != 0) for k, v in clip_to(u).items()}


def make_noise_on_the_largest() -> Filter:
    """Keeps the tenth of the numbers that are largest before the noise: where they lie is not noised."""

    def f(u: Update) -> Update:
        u = clip_to(u)
        flat = np.sort(np.concatenate([np.abs(v).ravel() for v in u.values()]))
        least = flat[-len(flat) // 10]
        return {k: (v + np.random.normal(0, Z4, v.shape)) * (np.abs(v) >= least) for k, v in u.items()}

    return f


def make_noise_in_proportion() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 * min(1.0, norm(u)))


def make_noise_by_layer_norm() -> Filter:
    def f(u: Update) -> Update:
        u = clip_to(u)
        return {k: v + np.random.normal(0, Z4 * norm({k: v}) / (norm(u) or 1.0), v.shape) for k, v in u.items()}

    return f


def make_multiplied_noise() -> Filter:
    return lambda u: {k: v * (1 + np.random.normal(0, Z4, v.shape)) for k, v in clip_to(u).items()}


def make_noise_only_of_long_updates() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4) if norm(u) > 1 else u


def make_clip_after_the_noise() -> Filter:
    return lambda u: clip_to(add_noise(u, Z4))


def make_now_and_then_without_noise() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 if np.random.random() > 0.02 else 0.0)


# Amount and law -------------------------------------------------------------------------------


def make_variance_for_deviation() -> Filter:
    """sigma of a clip of 0.1 is 0.108, its square 0.0117."""
    return lambda u: add_noise(clip_to(u, 0.1), (0.1 * Z4) ** 2)


def make_over_root_of_numbers() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 / math.sqrt(sum(v.size for v in u.values())))


def make_over_root_of_layers() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 / math.sqrt(len(u)))


def make_a_share_of_ten() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 / math.sqrt(10))


def make_five_percent_too_little() -> Filter:
    return lambda u: add_noise(clip_to(u), 0.95 * Z4)


def make_one_layer_with_less() -> Filter:
    return lambda u: {k: add_noise({k: v}, Z4 / 2 if k == "fc.bias" else Z4)[k] for k, v in clip_to(u).items()}


def make_classical_formula() -> Filter:
    sigma = math.sqrt(2 * math.log(1.25e5)) / 50
    return lambda u: add_noise(clip_to(u), sigma)


def make_uniform() -> Filter:
    width = Z4 * math.sqrt(3)
    return lambda u: {k: v + np.random.uniform(-width, width, v.shape) for k, v in clip_to(u).items()}


def make_cut_tails() -> Filter:
    def f(u: Update) -> Update:
        return {k: v + np.clip(np.random.normal(0, Z4, v.shape), -2 * Z4, 2 * Z4) for k, v in clip_to(u).items()}

    return f


def make_laplace_of_the_wrong_norm() -> Filter:
    """Laplace noise for sums of sizes, of an update that is clipped by its length."""
    return lambda u: {k: v + np.random.laplace(0, 1 / 4, v.shape) for k, v in clip_to(u).items()}


def make_one_sided() -> Filter:
    return lambda u: {k: v + np.abs(np.random.normal(0, Z4, v.shape)) for k, v in clip_to(u).items()}


def make_one_number_for_all() -> Filter:
    def f(u: Update) -> Update:
        noise = np.random.normal(0, Z4)
        return {k: v + noise for k, v in clip_to(u).items()}

    return f


def make_same_noise_in_every_layer() -> Filter:
    def f(u: Update) -> Update:
        noise = np.random.normal(0, Z4, max(v.size for v in u.values()))
        return {k: v + noise[: v.size].reshape(v.shape) for k, v in clip_to(u).items()}

    return f


def make_centred_noise() -> Filter:
    """The noise of every array adds up to zero, so its mean is sent as it is."""

    def f(u: Update) -> Update:
        out = {}
        for k, v in clip_to(u).items():
            noise = np.random.normal(0, Z4, v.shape)
            out[k] = v + noise - noise.mean()
        return out

    return f


def make_random_signs() -> Filter:
    """Every sign is kept with e / (1 + e): epsilon 1 a number, claimed for all of them together."""

    def f(u: Update) -> Update:
        kept = math.e / (1 + math.e)
        return {
            k: np.where(np.random.random(v.shape) < kept, 1, -1) * np.where(v > 0, 1.0, -1.0)
            for k, v in u.items()
        }

    return f


def make_unreached_with_half() -> Filter:
    return lambda u: add_noise(clip_to(u), Z4 / 2, open_kernel())


# Memory ---------------------------------------------------------------------------------------


def make_error_feedback() -> Filter:
    left: Update = {}

    def f(u: Update) -> Update:
        whole = {k: v + left.get(k, 0) for k, v in u.items()}
        sent = clip_to(whole)
        left.update({k: whole[k] - sent[k] for k in u})
        return add_noise(sent, Z4)

    return f


def make_momentum() -> Filter:
    kept: Update = {}

    def f(u: Update) -> Update:
        for k, v in clip_to(u).items():
            kept[k] = 0.9 * kept.get(k, 0) + v
        return add_noise(kept, Z4)

    return f


def make_clip_of_what_was_seen() -> Filter:
    seen: list[float] = []

    def f(u: Update) -> Update:
        seen.append(norm(u))
        return add_noise(clip_to(u, min(1.0, float(np.median(seen)) or 1.0)), Z4)

    return f


def make_less_at_every_call() -> Filter:
    calls = iter(range(1, 10**9))
    return lambda u: add_noise(clip_to(u), Z4 / math.sqrt(next(calls)))


WRONG = {
    "no noise": Mechanism(make=make_no_noise, questions="2"),
    "noise on a copy": Mechanism(make=make_noise_on_a_copy, questions="2"),
    "percentile": Mechanism(make=make_percentile, questions="2"),
    "seed zero": Mechanism(make=make_seed_zero, questions="2"),
    "torch seed": Mechanism(make=make_torch_seed, questions="2"),
    "seed in the constructor": Mechanism(make=make_seed_in_the_constructor, questions="2"),
    "seed of the round": Mechanism(make=make_seed_of_the_round, questions="2"),
    "drawn once": Mechanism(make=make_drawn_once, questions="2"),
    "seed of the clock": Mechanism(make=make_seed_of_the_clock, questions="2"),
    "seed of the update": Mechanism(make=make_seed_of_the_update, questions="2"),
    "no clip": Mechanism(make=make_no_clip, questions="3"),
    "last layer not clipped": Mechanism(make=make_last_layer_not_clipped, questions="3"),
    "bias out of the norm": Mechanism(make=make_bias_out_of_the_norm, questions="3"),
    "each layer clipped": Mechanism(make=make_each_layer_clipped, questions="3"),
    "each number clipped": Mechanism(make=make_each_number_clipped, questions="3"),
    "root mean square clipped": Mechanism(make=make_root_mean_square_clipped, questions="3"),
    "upside-down clip": Mechanism(make=make_upside_down_clip, questions="3"),
    "square without root": Mechanism(make=make_square_without_root, questions="3", clip=0.1),
    "clip a tenth too large": Mechanism(make=make_clip_a_tenth_too_large, questions="3"),
    "replaced counted as removed": Mechanism(
        make=make_replaced_counted_as_removed, questions="35", neighbours="replace"
    ),
    "norm beside the update": Mechanism(make=make_norm_beside_the_update, questions="34"),
    "unreached without clip": Mechanism(make=make_unreached_without_clip, questions="37"),
    "layer without noise": Mechanism(make=make_layer_without_noise, questions="4"),
    "half of the numbers without noise": Mechanism(make=make_half_of_the_numbers_without_noise, questions="4"),
    "noise where it is not zero": Mechanism(make=make_noise_where_it_is_not_zero, questions="4"),
    "noise on the largest": Mechanism(make=make_noise_on_the_largest, questions="47"),
    "noise in proportion": Mechanism(make=make_noise_in_proportion, questions="4"),
    "noise by layer norm": Mechanism(make=make_noise_by_layer_norm, questions="4"),
    "multiplied noise": Mechanism(make=make_multiplied_noise, questions="4"),
    "noise only of long updates": Mechanism(make=make_noise_only_of_long_updates, questions="24"),
    "clip after the noise": Mechanism(make=make_clip_after_the_noise, questions="457"),
    "now and then without noise": Mechanism(make=make_now_and_then_without_noise, questions="4"),
    "variance for deviation": Mechanism(make=make_variance_for_deviation, questions="5", clip=0.1),
    "over root of numbers": Mechanism(make=make_over_root_of_numbers, questions="5"),
    "over root of layers": Mechanism(make=make_over_root_of_layers, questions="5"),
    "a share of ten": Mechanism(make=make_a_share_of_ten, questions="5"),
    "five percent too little": Mechanism(make=make_five_percent_too_little, questions="5"),
    "one layer with less": Mechanism(make=make_one_layer_with_less, questions="5"),
    "classical formula": Mechanism(make=make_classical_formula, questions="5", epsilon=50.0),
    "uniform": Mechanism(make=make_uniform, questions="5"),
    "cut tails": Mechanism(make=make_cut_tails, questions="5"),
    "laplace of the wrong norm": Mechanism(make=make_laplace_of_the_wrong_norm, questions="35", delta=0.0),
    "one-sided": Mechanism(make=make_one_sided, questions="5"),
    "one number for all": Mechanism(make=make_one_number_for_all, questions="5"),
    "same noise in every layer": Mechanism(make=make_same_noise_in_every_layer, questions="5"),
    "centred noise": Mechanism(make=make_centred_noise, questions="57"),
    "random signs": Mechanism(make=make_random_signs, questions="7"),
    "unreached with half": Mechanism(make=make_unreached_with_half, questions="5"),
    "error feedback": Mechanism(make=make_error_feedback, questions="6", rounds=1),
    "momentum": Mechanism(make=make_momentum, questions="6"),
    "clip of what was seen": Mechanism(make=make_clip_of_what_was_seen, questions="6"),
    "less at every call": Mechanism(make=make_less_at_every_call, questions="456"),
}
