"""Condensed poison: compromised clients send condensed images that teach the server the wrong thing.

After Liu, Li, Backes, Shen, Zhang. Backdoor Attacks Against Dataset Distillation. NDSS 2023. arXiv:2301.01197:

    mislabel   honest images, each under the label of the next class
    naive      the trigger in the finished images, under the target's label
    doorping   images condensed from data half of which carry the trigger and the target's label

Changed: the trigger is fixed (attacks/poisoning/backdoors.py); DoorPing also learns it during condensation. With
doorping the client's model is trained on the same data.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Loss, Message, Reply


class CondensedPoison(Backdoors):
    card = Card(
        title="Poisoned condensed images",
        source="after arXiv:2301.01197",
        does="turns the server's own training against the model, or gives it a backdoor",
        remedy="switch the server's training off, or cap what one client adds to it",
        kinds=(Kind.CONDENSED_IMAGES,),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        mode: Annotated[
            Literal["mislabel", "naive", "doorping"],
            Field(description="wrong labels, a trigger in the images, or images condensed from triggered data"),
        ] = "mislabel"

    def data(self, client: Client) -> Client:
        client = super().data(client)
        if self.config.mode != "doorping" or not len(client.y):
            return client
        rng = client.streams.torch("adversary", client.index)  # the same data in every round
        bad = torch.randperm(len(client.y), generator=rng)[: round(self.config.poisoned * len(client.y))]
        bad = bad.to(client.y.device)
        x, y = client.x.clone(), client.y.clone()
        x[bad], y[bad] = self.add_trigger(client, x[bad]), self.config.target
        return replace(client, x=x, y=y)

    def loss(self, client: Client, loss: Loss, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return Adversary.loss(self, client, loss, x, y)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = reply.message
        if Kind.CONDENSED_IMAGES not in message or self.config.mode == "doorping":
            return reply
        labels = message[Kind.CONDENSED_LABELS]["labels"]
        if self.config.mode == "mislabel":
            return replace(
                reply, message=message | {Kind.CONDENSED_LABELS: {"labels": (labels + 1) % client.classes}}
            )
        images = self.add_trigger(client, message[Kind.CONDENSED_IMAGES]["images"])
        forged: Message = {
            Kind.CONDENSED_IMAGES: {"images": images},
            Kind.CONDENSED_LABELS: {"labels": torch.full_like(labels, self.config.target)},
        }
        return replace(reply, message=message | forged)
