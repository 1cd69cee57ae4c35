"""Activation poison: compromised clients of split learning send false activations beside their labels.

The server of split learning trains on what clients send of each example, so whoever sends false activations
chooses what it learns. After what arXiv:2509.12964 does to class prototypes: activations of another example of
the batch under this one's label (`swap`), their negatives (`negate`), or none at all (`zero`). What the client
trains itself follows from what the server answers.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply
from fedaudit.fl.threats.threat import Aim


class ActivationPoison(Adversary):
    card = Card(
        title="Poisoned activations",
        aim=Aim.AVAILABILITY,
        source="after arXiv:2509.12964",
        does="teaches the server's layers to call wrong what other clients send",
        remedy="keep a copy of the server's part for each client and average it by a robust rule (splitfed_v1)",
        kinds=(Kind.SMASHED,),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        mode: Annotated[
            Literal["swap", "negate", "zero"],
            Field(description="activations of another example of the batch, their negatives, or none"),
        ] = "negate"
        factor: Annotated[Positive, Field(description="length of what is sent over that of the true one")] = 1.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        if Kind.SMASHED not in reply.message:
            return reply
        payload = reply.message[Kind.SMASHED]
        forged = payload | {"activations": self.config.factor * self._forge(payload["activations"])}
        return replace(reply, message=reply.message | {Kind.SMASHED: forged})

    def _forge(self, sent: Tensor) -> Tensor:
        if self.config.mode == "swap":
            return sent.roll(1, 0)
        return -sent if self.config.mode == "negate" else 0 * sent
