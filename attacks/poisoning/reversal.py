"""Reversed updates: compromised clients send a change turned round, the honest mean or their own."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge, changes
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply
from fedaudit.fl.threats.forging import forge_message

PLUGINS = ("ipm", "sign_flip")


class IPM(Colluding):
    """Inner product manipulation: compromised clients send the honest mean, turned round and scaled.

    Xie, Koyejo, Gupta. Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation. UAI
    2019. arXiv:1903.03936, sec. 4:

        sent = -tau * mean of the honest changes

    A small tau stays among the honest (evades); with tau > (n - m) / m the mean itself turns round, of n
    heard and m malicious. `tau: null` is n / m + 1, which breaks the mean for certain: the planted fault of a
    robustness audit.
    """

    card = Card(
        title="Inner product manipulation",
        source="arXiv:1903.03936, sec. 4",
        does="turns training round, or slows it down while staying among the honest",
        remedy="use a rule that one group cannot pull, such as median, or nnm with one behind it",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        tau: Annotated[
            Amount | None, Field(description="how many times the honest mean, turned round; null is n / m + 1")
        ] = 0.1

    def forge(self, crowd: Crowd) -> Forge:
        tau = crowd.heard / crowd.malicious + 1 if self.config.tau is None else self.config.tau
        return lambda _: -tau * crowd.mean


class SignFlip(Adversary):
    """Sign flip: compromised clients train as told and send the opposite of what they learnt.

    Li, Xu, Chen, Giannakis, Ling. RSA: Byzantine-Robust Stochastic Aggregation Methods. AAAI 2019.
    arXiv:1811.03761.

        sent = -scale * (own change of the model)
    """

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
            message = forge_message(message, received, turned, kind)
        return replace(reply, message=message)
