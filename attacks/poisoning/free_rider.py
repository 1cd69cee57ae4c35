"""Free rider: clients that do no work and send something that looks like it.

Lin, Du, Liu. Free-riders in Federated Learning: Attacks and Defenses. 2019. arXiv:1911.12560. `zero` returns the
model as received. `delta` sends the last change of the shared model with normal noise of the standard deviation
of that change over its weights, which it takes for that of an honest one (sec. 4.3); there is none in the first
round, and zero is sent. The number of examples that it claims is that of the data it holds.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, changes, shape_vector, vector
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Payload, Reply
from fedaudit.fl.threats.forging import forge_message
from fedaudit.fl.threats.threat import Aim


class FreeRider(Adversary):
    card = Card(
        title="Free rider",
        aim=Aim.INTEGRITY,
        source="arXiv:1911.12560",
        does="gets the model without contributing, and slows training down for the others",
        remedy="compare what clients send over the rounds; weigh no claim of examples without a cap",
        kinds=KINDS,
    )
    remembers = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        mode: Annotated[
            Literal["zero", "delta"], Field(description="the model as received, or its last change with noise")
        ] = "delta"
        noise: Annotated[Amount, Field(description="of mode: delta, in its standard deviations")] = 1.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message, names = reply.message, [k for k, _ in client.net.named_parameters()]
        for kind, change in changes(message, received, names):
            message = forge_message(message, received, self._make_update(client, change), kind)
        return replace(reply, message=message)

    def _make_update(self, client: Client, change: Payload) -> Payload:
        nothing = {k: torch.zeros_like(v) for k, v in change.items()}
        if self.config.mode == "zero" or not all(k in client.before and k in client.start for k in change):
            return nothing
        last = vector({k: client.start[k].cpu().double() - client.before[k].cpu().double() for k in change})
        noise = torch.randn(len(last), generator=client.generator("adversary"), dtype=torch.float64)
        deviation = float(last.std()) if len(last) > 1 else 0.0
        return shape_vector(last + self.config.noise * deviation * noise, change)
