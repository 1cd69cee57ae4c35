"""False outputs: compromised clients send outputs, features or curvature that teach the others something false.

After Chang et al., Cronus, arXiv:1912.11279, whose label flipping reaches the others by predictions, and the same
for what else is sent in the place of models:

    public logits   those of the next class, times `factor`
    features        labels of the next class, with outputs to match
    Fisher          u as it is and v negated, both times `factor`: the others are pulled to the opposite model

Factor 1 is within what honest clients send. The robust counterpart for logits is a robust mean of them, which is
the federation's aggregator (Cronus has one of its own). For features and Fisher diagonals we know of none.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Payload, Reply
from fedaudit.fl.threats.threat import Aim


class FalseOutputs(Adversary):
    card = Card(
        title="False outputs, features or curvature",
        aim=Aim.AVAILABILITY,
        source="after arXiv:1912.11279, sec. 2",
        does="teaches other clients the wrong classes, or pulls their weights to the opposite",
        remedy="take a robust mean of outputs, such as median; bound each client's curvature before it is summed",
        kinds=(Kind.PUBLIC_LOGITS, Kind.FEATURES, Kind.FISHER),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        factor: Annotated[Positive, Field(description="how much larger than honest outputs or curvature")] = 1.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        sent = {k: self._forge(k, v, client.classes) for k, v in reply.message.items() if k in self.card.kinds}
        return replace(reply, message=reply.message | sent)

    def _forge(self, kind: Kind, payload: Payload, classes: int) -> Payload:
        factor = self.config.factor
        if kind is Kind.FISHER:
            return {k: (-factor if k.startswith("v/") else factor) * v for k, v in payload.items()}
        forged = payload | {"logits": factor * payload["logits"].roll(1, 1)}
        if kind is Kind.FEATURES:
            forged["labels"] = (payload["labels"] + 1) % classes
        return forged
