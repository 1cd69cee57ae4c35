"""Prototype mixing: each prototype is moved a secret part of the way to the federation's.

A plain rule of ours, after mixup (Zhang et al., ICLR 2018, arXiv:1710.09412) on class means instead of
images. For every class c of a message, with a weight a_c that is drawn anew and told to nobody,

    p_c <- (1 - a_c) p_c + a_c g_c,      a_c uniform on [0, most],

where g_c is the class's global prototype that the client received, or the mean of the client's own
prototypes where it received none of that class (the first round).

This promises nothing in the sense of differential privacy, and the ledger lists the prototypes as
released in clear: who knows g_c has p_c on a line, and with `most` below 1 a part of p_c is always
left. What it buys is what the attacks of the report lose, none of which tries to undo it. most 0 changes
nothing.
"""

import torch
from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.protection import Payload, Protection, Sending


class PrototypeMixing(Protection):
    title = "Prototypes mixed with the federation's"
    source = "after arXiv:1710.09412"
    kinds = (Kind.LOCAL_PROTOTYPES,)

    @settings
    class Config:
        most: Share = Field(
            default=0.5, description="largest share of the other prototype in what is sent; 0 changes nothing"
        )

    def describe(self) -> str:
        return (
            f"each prototype mixed with a secret share, up to {self.config.most:g}, of the class's "
            "global prototype, or of the client's mean prototype where there is none"
        )

    def apply(self, sending: Sending) -> None:
        if Kind.LOCAL_PROTOTYPES in sending.message and self.config.most:
            sending.message[Kind.LOCAL_PROTOTYPES] = self._mix_prototypes(
                sending.message[Kind.LOCAL_PROTOTYPES],
                sending.reference.get(Kind.GLOBAL_PROTOTYPES, {}),
                sending.rng,
            )

    def _mix_prototypes(self, own: Payload, received: Payload, rng: torch.Generator) -> Payload:
        features = own["features"]
        other = features.mean(0, keepdim=True).repeat(len(features), 1)
        place = {int(c): i for i, c in enumerate(received.get("classes", ()))}
        for row, c in enumerate(own["classes"].tolist()):
            if c in place:
                other[row] = received["features"][place[c]]
        share = torch.rand((len(features), 1), generator=rng) * self.config.most
        return own | {"features": features + share * (other - features)}
