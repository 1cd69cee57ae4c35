"""Quantisation: every array is sent as whole multiples of one step, 2^bits values at most.

Suresh, Yu, Kumar, McMahan. Distributed Mean Estimation with Limited Communication. ICML 2017.
arXiv:1611.00429, sec. 2.2 (stochastic k-level quantisation). With l and h the smallest and largest value
of an array and step = (h - l) / (2^bits - 1), a value x is sent as l + step * round((x - l) / step), where
round goes up with the probability of the remainder (unbiased), or to the nearer of the two. A model is
quantised as its change from the model received. Whole-number arrays stay. What arrives are the floating-point
numbers that the server computes with; the bytes are those of the levels (fl/recording/coded.py).

Rounding is no noise with a known bound: it promises no differential privacy, and the ledger lists
what it touched as released in clear. After a protection that adds noise it costs nothing and loses
nothing of the promise; the ledger then gets the step, because noise below it is gone. bits 32 changes
nothing.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.coded import Coded, levels
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, change, rebuild
from fedaudit.fl.wire.protection import Protection, Sending, Uploads

OFF = 32  # the numbers have no more bits than that
FEW_BITS = 3  # as an audit tries it


class Quantise(Protection):
    title = "Quantisation"
    source = "arXiv:1611.00429, sec. 2.2"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(
            default=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.LOCAL_PROTOTYPES, Kind.PUBLIC_LOGITS),
            description="kinds of messages to quantise",
        )
        bits: int = Field(default=8, ge=1, le=OFF, description="bits of each number sent; 32 changes nothing")
        rounding: Literal["stochastic", "nearest"] = Field(
            default="stochastic",
            description="up with the probability of the remainder (unbiased), or to the nearer step",
        )

    @classmethod
    def propose(cls, uploads: Uploads) -> dict[str, Any] | None:
        """Few levels: at 8 bits an array is rounded by less than any attack here would notice."""
        able = [k for k in cls.Config().kinds if k in uploads.kinds]
        return {"kinds": [k.value for k in able], "bits": FEW_BITS} if able else None

    def describe(self) -> str:
        c = self.config
        return f"{', '.join(c.kinds)} rounded to {c.bits} bits an array ({c.rounding} rounding)"

    def apply(self, sending: Sending) -> None:
        if self.config.bits == OFF:
            return
        for kind in self.config.kinds:
            if kind not in sending.message:
                continue
            payload, base = sending.message[kind], base_of(kind, sending.reference)
            moving = change(payload, base)
            steps = {k: _step(v, self.config.bits) for k, v in moving.items()}
            moved = {k: self._round_values(v, steps[k], sending.rng) for k, v in moving.items()}
            sent = rebuild(payload, base, moved)
            sending.message[kind] = Coded(sent, levels(payload, self.config.bits))
            largest = max(steps.values(), default=0.0)
            sending.releases[:] = [
                replace(r, resolution=max(r.resolution, largest)) if r.kind == kind else r
                for r in sending.releases
            ]

    def _round_values(self, value: Tensor, step: float, rng: torch.Generator) -> Tensor:
        if not step:  # all numbers are equal, or there are none
            return value
        low = value.double().min()
        position = (value.double() - low) / step
        if self.config.rounding == "stochastic":
            up = torch.rand(value.shape, generator=rng, dtype=torch.float64)
            position = (position + up).floor().clamp(max=2**self.config.bits - 1)
        else:
            position = position.round()
        return (low + step * position).to(value.dtype)


def _step(value: Tensor, bits: int) -> float:
    if value.numel() < 2:
        return 0.0
    step = float(value.double().max() - value.double().min()) / (2**bits - 1)
    return step if math.isfinite(step) else 0.0
