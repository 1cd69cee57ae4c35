"""What noising protections share: the vector that a message stands for, its clip, and noise on it.

The floating-point arrays of one payload are one vector v. A model counts as its change from the model
received. v is scaled to at most `clip` in the L2 or L1 norm, and then noise is added:

    v <- v * min(1, clip / ||v||) + noise

A number whose change is not finite counts as no change, and a count below 0 as 0: a client whose training
diverged sends noise on what is left, and nobody sees that it did.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fedaudit.fl.kinds import MODELS, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.wire.protection import Message, Payload, Sending

NON_FINITE = "what is not finite counts as no change"


def base_of(kind: Kind, reference: Message) -> Payload:
    """What the payload of that kind is a change from, of all that its sender received; nothing but for models."""
    return reference.get(Kind.GLOBAL_MODEL, {}) if kind in MODELS else {}


def change(payload: Payload, base: Payload) -> Payload:
    """The floating-point arrays, less what they are a change from."""
    return {k: v - base[k] if k in base else v for k, v in payload.items() if v.is_floating_point()}


def rebuild(payload: Payload, base: Payload, moved: Payload) -> Payload:
    """The payload with another change from its base."""
    return payload | {k: base[k] + v if k in base else v for k, v in moved.items()}


def replace_non_finite(payload: Payload, base: Payload, counted: str = "") -> Payload:
    """The payload with no change where a change is not finite, and 0 where the array `counted` is below it.

    The very same payload where there is neither.
    """
    replaced = {}
    for name, value in payload.items():
        if value.is_floating_point():
            start = base.get(name, value.new_zeros(()))
            is_finite = (value - start).isfinite()
            if not bool(is_finite.all()):
                replaced[name] = torch.where(is_finite, value, start)
        if name == counted and bool((value < 0).any()):
            replaced[name] = replaced.get(name, value).clamp(min=0)
    if not replaced:
        return payload
    arrays = {**payload, **replaced}
    return Coded(arrays, payload.size, payload.masks) if isinstance(payload, Coded) else arrays


def clip(payload: Payload, base: Payload, bound: float, order: int = 2, rows: bool = False) -> Payload:
    """The payload scaled down to a norm of that order, at most `bound`; the very same tensors where it is less.

    With `rows`, each row of an array [rows, ...] is a vector of its own with a clip of its own.
    """
    clipped, binds = _clip_change(payload, base, bound, order, rows)
    return rebuild(payload, base, clipped) if binds else payload


def perturb(
    payload: Payload,
    base: Payload,
    bound: float,
    noise: NoiseSource,
    line: Release,
    order: int = 2,
    rows: bool = False,
) -> Payload:
    """The payload clipped as by clip(), with the noise that `line` states."""
    clipped, binds = _clip_change(payload, base, bound, order, rows)
    if line.mechanism != "none":
        clipped = noise.release(line, clipped)
    elif not binds:
        return payload  # bit for bit: nothing to clip, nothing to add
    return rebuild(payload, base, clipped)


def _clip_change(payload: Payload, base: Payload, bound: float, order: int, rows: bool) -> tuple[Payload, bool]:
    """The change from the base, clipped, and whether the clip did anything."""
    moving = change(payload, base)
    if rows:
        factors = {k: _compute_row_factors(v, bound, order) for k, v in moving.items()}
        binds = any(bool((f < 1).any()) for f in factors.values())
        return ({k: (v * factors[k]).to(v.dtype) for k, v in moving.items()} if binds else moving), binds
    factor = _compute_factor(norm(moving, order), bound)
    binds = factor < 1
    return ({k: _scale(v, factor) for k, v in moving.items()} if binds else moving), binds


def norm(arrays: Payload, order: int) -> float:
    """The norm of order 1 or 2 of all arrays as one vector, in double precision."""
    total = sum(float(v.double().abs().pow(order).sum()) for v in arrays.values())
    return total ** (1 / order) if order > 1 else total


def in_clear(kind: Kind, sending: Sending, source: str) -> list[Release]:
    """Releases of what noise leaves as it is: whole-number arrays, or else how many rows there are."""
    whole = [k for k, v in sending.message[kind].items() if not v.is_floating_point()]
    if kind.listed and not whole:
        whole = ["rows"]
    return leave_in_clear(kind, whole, sending, source)


def leave_in_clear(kind: Kind, names: Iterable[str], sending: Sending, source: str) -> list[Release]:
    """Releases of these arrays of a kind as they are."""
    return [
        Release(
            round=sending.round,
            kind=f"{kind}.{name}",
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="none",
            source=source,
        )
        for name in names
    ]


def _compute_factor(length: float, clip: float) -> float:
    return min(1.0, clip / length) if length > 0 else 1.0


def _scale(value: Tensor, factor: float) -> Tensor:
    """`value` times `factor`, which is rounded to a few bits where it is too small for single precision."""
    if factor < torch.finfo(torch.float32).tiny:
        return (value.double() * factor).to(value.dtype)
    return value * factor


def _compute_row_factors(value: Tensor, clip: float, order: int) -> Tensor:
    flat = value.double().reshape(len(value), -1)
    lengths = flat.abs().pow(order).sum(1).pow(1 / order)
    found = torch.where(lengths > clip, clip / lengths.clamp(min=math.ulp(0.0)), 1.0)
    is_tiny = bool((found < torch.finfo(torch.float32).tiny).any())
    wide = torch.float64 if is_tiny else torch.promote_types(value.dtype, torch.float32)
    return found.to(wide).reshape(-1, *[1] * (value.dim() - 1))
