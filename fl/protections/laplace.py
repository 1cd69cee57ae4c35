"""Laplace protection: clip what a client sends in the L1 norm, add Laplace noise, say what that is worth.

Dwork, McSherry, Nissim, Smith. Calibrating Noise to Sensitivity in Private Data Analysis. TCC 2006,
Prop. 1. Everything one chosen kind holds is one vector v per message, as for dp_gaussian:

    v <- v * min(1, clip_norm / ||v||_1) + Laplace(0, scale)   per coordinate,

and one release costs a client epsilon = clip_norm / scale at delta = 0. The guarantee is local. The L1
norm of a vector of D numbers is up to sqrt(D) times its L2 norm: for models and prototypes Gaussian noise
is nearly always the better bargain; this is for short vectors. scale 0 with clip_norm inf changes
nothing. Counts, which must stay whole numbers, have discrete_laplace.
"""

import math

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Adjacency, Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, in_clear, perturb
from fedaudit.fl.wire.protection import Protection, Sending


class Laplace(Protection):
    title = "Clipping and Laplace noise"
    source = "Dwork et al., TCC 2006, Prop. 1"
    strength = "scale"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(description="kinds of messages that are clipped and get noise")
        clip_norm: float = Field(
            default=1.0, gt=0, description="largest L1 norm of what one client sends; .inf means no clipping"
        )
        scale: Amount = Field(
            default=1.0,
            description="b: scale of the noise on each number, whose standard deviation is sqrt(2) b; 0 "
            "adds no noise",
        )
        adjacency: Adjacency = Field(default="add_or_remove_one", description="how neighbouring data sets differ")

        def __post_init__(self) -> None:
            if self.scale and math.isinf(self.clip_norm):
                raise UserError(
                    "laplace: noise without a finite clip_norm protects nothing",
                    hint="set clip_norm, or scale: 0",
                )

    def describe(self) -> str:
        c = self.config
        return (
            f"{', '.join(c.kinds)} clipped to L1 norm {c.clip_norm:g} with Laplace noise of scale "
            f"{c.scale:g}, added before the server receives it"
        )

    def noise_std(self, kind: Kind) -> float:
        return math.sqrt(2) * self.config.scale if kind in self.config.kinds else 0.0

    def apply(self, sending: Sending) -> None:
        c = self.config
        for kind in c.kinds:
            if kind in sending.message:
                line, clear = self._describe_release(kind, sending), in_clear(kind, sending, "laplace")
                payload, base = sending.message[kind], base_of(kind, sending.reference)
                sending.message[kind] = perturb(payload, base, c.clip_norm, sending.noise, line, order=1)
                sending.protected.add(kind)
                sending.releases += [line, *clear]

    def _describe_release(self, kind: Kind, sending: Sending) -> Release:
        c = self.config
        bounded = not math.isinf(c.clip_norm)
        factor = 1.0 if c.adjacency != "replace_one" else 2.0
        return Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="laplace" if c.scale else "none",
            noise_std=c.scale,
            sensitivity=factor * c.clip_norm if bounded else None,
            adjacency=c.adjacency,
            clipped="on the client's whole vector in the L1 norm, before noise" if bounded else "",
            clip_norm=c.clip_norm if bounded else None,
            clip_of="update" if bounded else "",
            derived="clip" if bounded else "declared",
            source="laplace",
        )
