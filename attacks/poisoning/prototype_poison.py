"""Prototype poison: compromised clients send false class prototypes, as if many examples stood behind them.

After BAPFL: Backdoor Attacks against Prototype-based Federated Learning. 2025. arXiv:2509.12964, without its
triggers: prototypes of the next class of the client (`roll`), their negatives (`negate`), or one vector that
is claimed for all classes (`one`). The counts that weigh them are claimed `factor` times too large.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Payload, Reply
from fedaudit.fl.threats.threat import Aim


class PrototypePoison(Adversary):
    card = Card(
        title="Poisoned prototypes",
        aim=Aim.TARGETED,
        source="after arXiv:2509.12964",
        does="teaches the last layer of all clients wrong features of the classes they lack",
        remedy="take prototypes by capped_mean or median, so that no claimed count decides",
        kinds=(Kind.LOCAL_PROTOTYPES,),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        mode: Annotated[
            Literal["roll", "negate", "one"],
            Field(description="prototypes of the next class, their negatives, or one vector for all classes"),
        ] = "negate"
        factor: Annotated[Positive, Field(description="claimed counts over the true ones")] = 1.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        if Kind.LOCAL_PROTOTYPES not in reply.message:
            return reply
        prototypes = self._forge(reply.message[Kind.LOCAL_PROTOTYPES], client.classes)
        forged: Message = {Kind.LOCAL_PROTOTYPES: prototypes}
        if Kind.PROTO_COUNTS in reply.message:
            counts: Tensor = reply.message[Kind.PROTO_COUNTS]["counts"]
            if self.config.mode == "one":
                counts = counts.double().mean().expand(client.classes)
            counts = (counts.double() * self.config.factor).round().clamp(min=1).to(torch.int64)
            forged[Kind.PROTO_COUNTS] = {"classes": prototypes["classes"], "counts": counts}
        return replace(reply, message=reply.message | forged)

    def _forge(self, sent: Payload, classes: int) -> Payload:
        features = sent["features"]
        if self.config.mode == "roll":
            return sent | {"features": features.roll(1, 0)}
        if self.config.mode == "negate":
            return sent | {"features": -features}
        return {"classes": torch.arange(classes), "features": features.mean(0).repeat(classes, 1)}
