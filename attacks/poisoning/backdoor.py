"""Backdoor: compromised clients teach the model to answer a trigger with a class of their choice.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov. How To Backdoor Federated Learning. AISTATS 2020. arXiv:1807.00459.
Half of each of their batches carries the trigger (attacks/poisoning/_trigger.py) and the target's label; on
other images the model works as before. With `poisons: images` it is half of their images, the same ones in
every round, as when data are poisoned before training (Gu et al. BadNets. 2017. arXiv:1708.06733): the other
half never teaches the model what these images are, and the backdoor of a single client is far stronger. `scale`
multiplies what they send.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._backdoors import Backdoors
from fedaudit.attacks.poisoning._updates import changes, forged
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Card, Client, Loss, Message, Reply


class Backdoor(Backdoors):
    card = Card(
        title="Backdoor",
        source="arXiv:1807.00459",
        does="makes the model give the attacker's answer to any image with the trigger",
        remedy="use a rule that selects or takes medians; bounds on norms leave a part of the backdoor",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        scale: Annotated[Amount, Field(description="what is sent over what was learnt")] = 1.0
        poisons: Annotated[
            Literal["batches", "images"],
            Field(description="a share of each batch, drawn anew, or always that share of its images, the first"),
        ] = "batches"

    def data(self, client: Client) -> Client:
        client = super().data(client)
        if self.config.poisons == "batches":
            return client
        bad, x, y = round(self.config.poisoned * len(client.y)), client.x.clone(), client.y.clone()
        x[:bad] = self.triggered(client, x[:bad])
        y[:bad] = self.config.target
        return replace(client, x=x, y=y)

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(client, loss, x, y) if self.config.poisons == "batches" else loss(x, y)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = reply.message
        if self.config.scale != 1:
            for kind, change in changes(message, received, [k for k, _ in client.net.named_parameters()]):
                message = forged(message, received, {k: self.config.scale * v for k, v in change.items()}, kind)
        return replace(reply, message=message)
