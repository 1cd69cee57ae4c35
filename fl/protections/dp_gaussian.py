"""Gaussian protection: clip what a client sends, add Gaussian noise, and say what that is worth.

Dwork, Roth. The Algorithmic Foundations of Differential Privacy. 2014, A.1; with client-level
clipping as in McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963, sec. 2.

Everything one chosen kind holds is one vector v per message, and each kind is a release of its own: a
model counts as its change from the model received (w_k - w), other kinds as they are.

    v <- v * min(1, clip_norm / ||v||) + N(0, (noise_multiplier * clip_norm)^2)   per coordinate

The noise is added on the way to the server, so the guarantee is local: the unit is the client, and
the server itself is an observer. Integer arrays beside the vector (which classes a client has) are
not noised, and the ledger says so. noise_multiplier 0 with clip_norm inf changes nothing.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fl.artifact import Kind
from fl.errors import UserError
from fl.ledger import Adjacency, Release
from fl.protection import Payload, Protection, Sending


class DPGaussian(Protection):
    title = "Clipping and Gaussian noise"
    source = "arXiv:1710.06963, sec. 2"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        kinds: tuple[Kind, ...] = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA)
        clip_norm: float = 1.0  # C: largest L2 norm of what one client sends
        noise_multiplier: float = 1.0  # z: noise standard deviation / C
        adjacency: Adjacency = "add_or_remove_one"

        def __post_init__(self) -> None:
            if not self.clip_norm > 0:
                raise UserError(f"dp_gaussian.clip_norm must be > 0, got {self.clip_norm}",
                                hint="use .inf for no clipping")  # fmt: skip
            if not 0 <= self.noise_multiplier < math.inf:
                raise UserError(
                    f"dp_gaussian.noise_multiplier must be >= 0, got {self.noise_multiplier}",
                    hint="use 0 for no noise",
                )
            if self.noise_multiplier and math.isinf(self.clip_norm):
                raise UserError("dp_gaussian: noise without a finite clip_norm protects nothing",
                                hint="set clip_norm, or noise_multiplier: 0")  # fmt: skip

    def describe(self) -> str:
        c = self.config
        return (
            f"{', '.join(c.kinds)} clipped to norm {c.clip_norm:g} with Gaussian noise of "
            f"standard deviation {c.noise_multiplier * c.clip_norm:g} (multiplier "
            f"{c.noise_multiplier:g}), added before the server receives it"
        )

    def apply(self, sending: Sending) -> None:
        for kind in self.config.kinds:
            if kind in sending.message:
                base = (
                    sending.reference.get(Kind.GLOBAL_MODEL, {}) if kind == Kind.LOCAL_MODEL else {}
                )
                sending.message[kind] = self._noised(sending.message[kind], base, sending.rng)
                sending.protected.add(kind)
                sending.releases += self._releases(kind, sending)

    def _noised(self, payload: Payload, base: Payload, rng: torch.Generator) -> Payload:
        clip, z = self.config.clip_norm, self.config.noise_multiplier
        moving = {
            k: v - base[k] if k in base else v for k, v in payload.items() if v.is_floating_point()
        }
        norm = math.sqrt(sum(float(v.double().square().sum()) for v in moving.values()))
        if norm <= clip and not z:
            return payload  # bit for bit: nothing to clip, nothing to add
        factor = min(1.0, clip / norm) if norm > 0 else 1.0
        out = dict(payload)
        for name, value in moving.items():
            noise = torch.randn(value.shape, generator=rng) * (z * clip) if z else 0.0
            protected: Tensor = value * factor + noise
            out[name] = base[name] + protected if name in base else protected
        return out

    def _releases(self, kind: Kind, sending: Sending) -> list[Release]:
        c = self.config
        factor = 1.0 if c.adjacency == "add_or_remove_one" else 2.0
        bounded = not math.isinf(c.clip_norm)
        noised = Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="gaussian" if c.noise_multiplier else "none",
            noise_std=c.noise_multiplier * c.clip_norm if c.noise_multiplier else 0.0,
            sensitivity=factor * c.clip_norm if bounded else None,
            adjacency=c.adjacency,
            clipped="on the client's whole vector, before noise" if bounded else "",
            source="dp_gaussian",
            clip_norm=c.clip_norm if bounded else None,
            clip_of="update" if bounded else "",
            derived="clip" if bounded else "declared",
        )
        integers = [k for k, v in sending.message[kind].items() if not v.is_floating_point()]
        clear = [
            Release(
                round=sending.round, kind=f"{kind}.{name}", sender=str(sending.sender),
                observers=sending.observers, mechanism="none", source="dp_gaussian",
            )
            for name in integers
        ]  # fmt: skip
        return [noised, *clear]
