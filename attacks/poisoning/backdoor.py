"""Backdoor: compromised clients teach the model to answer a trigger with a class of their choice.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov. How To Backdoor Federated Learning. AISTATS 2020. arXiv:1807.00459.
Half of each of their batches carries the trigger (attacks/poisoning/_trigger.py) and the target's label; on other
images the model works as before. `scale` multiplies what they send.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from attacks.poisoning._backdoors import Backdoors
from attacks.poisoning._updates import changes, forged
from fl.adversary import Card, Client, Message, Reply
from fl.ranges import Amount


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

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = reply.message
        if self.config.scale != 1:
            for kind, change in changes(message, received, [k for k, _ in client.net.named_parameters()]):
                message = forged(message, received, {k: self.config.scale * v for k, v in change.items()}, kind)
        return replace(reply, message=message)
