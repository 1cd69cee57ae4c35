"""Relay poison: a compromised client hands on a generator, or a model, that is not what it should have made.

Of this project; the weakness is that of relays as in GANDALF, sec. 3.3 and 3.4, where the next client starts from
what one client sends and nobody compares:

    collapse   a generator, or a model, whose weights are all zero: every image is the same grey
    backdoor   a generator and a model trained on images half of which carry the trigger and the target's label
    skip       what it received, unchanged; with the sign of life of one that worked

What is handed on before the last hop is trained on by others; the last hop's word is final.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Loss, Message, Payload, Reply
from fedaudit.fl.threats.threat import Aim

HANDED = (Kind.GAN_G, Kind.GAN_D, Kind.RELAY_MODEL)


class RelayPoison(Backdoors):
    card = Card(
        title="Poisoned relay",
        needs="classes",
        aim=Aim.BACKDOOR,
        source="this project",
        does="makes every client behind it in the relay train on what the attacker wants",
        remedy="let the server compare what a relay returns with what it was sent, or average several",
        kinds=HANDED,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        mode: Annotated[
            Literal["collapse", "backdoor", "skip"],
            Field(description="zero weights, weights of triggered data, or what was received"),
        ] = "collapse"

    def data(self, client: Client) -> Client:
        if self.config.mode != "backdoor":
            return client
        client = super().data(client)
        bad = client.y.new_zeros(len(client.y), dtype=torch.bool)
        bad[: round(self.config.poisoned * len(client.y))] = True
        x = client.x.clone()
        x[bad] = self.add_trigger(client, x[bad])
        return replace(client, x=x, y=client.y.masked_fill(bad, self.config.target))

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        return Adversary.loss(self, client, loss, x, y)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        forged: Message = {}
        for kind in HANDED:
            if kind not in reply.message:
                continue
            if self.config.mode == "skip" and kind in received:
                forged[kind] = received[kind]
            elif self.config.mode == "collapse" and kind is not Kind.GAN_D:
                forged[kind] = _zero(reply.message[kind])
        return replace(reply, message=reply.message | forged)


def _zero(payload: Payload) -> Payload:
    return {k: torch.zeros_like(v) if v.is_floating_point() else v for k, v in payload.items()}
