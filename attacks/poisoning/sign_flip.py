"""Sign flip: compromised clients train as told and send the opposite of what they learnt.

Li, Xu, Chen, Giannakis, Ling. RSA: Byzantine-Robust Stochastic Aggregation Methods. AAAI 2019. arXiv:1811.03761.

    sent = -scale * (own change of the model)
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, changes, forged
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply


class SignFlip(Adversary):
    card = Card(
        title="Sign flip",
        source="arXiv:1811.03761",
        does="slows training down or turns it round: the model unlearns what others teach it",
        remedy="use a rule that one distant update cannot move, such as median",
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        scale: Annotated[Amount, Field(description="its own change, turned round, is sent that many times")] = 1.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = reply.message
        for kind, change in changes(message, received, [k for k, _ in client.net.named_parameters()]):
            turned = {k: -self.config.scale * v for k, v in change.items()}
            message = forged(message, received, turned, kind)
        return replace(reply, message=message)
