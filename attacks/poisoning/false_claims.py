"""False claims: compromised clients state other losses, steps or times than theirs, and so weigh more.

Of this project, against every server that chooses or weighs by what clients say of themselves: a loss
(power_of_choice takes the clients with the largest, qffl gives them more weight, gandalf waits until it settles)
and the number of steps (fednova divides and multiplies by it). What is trained is honest. `wait` holds the
answer back, which lengthens rounds and raises deadlines that follow times. Counts of examples are the matter of
count_inflation. Left out: the version of the model that a client trained on, by which fedasync and fedbuff weigh.
A client knows no later one than its own, an earlier one weighs it less, and one that the server does not hold has
its answer rejected.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from fedaudit.attacks.poisoning._updates import state_number
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply
from fedaudit.fl.threats.threat import Aim

STATED = {Kind.LOCAL_LOSS: ("loss",), Kind.NUM_STEPS: ("steps", "norm")}  # the arrays that are multiplied


class FalseClaims(Adversary):
    card = Card(
        title="False claims of losses, steps and times",
        aim=Aim.INTEGRITY,
        source="this project",
        does="has the server choose or weigh the attacker by what it says of itself",
        remedy="choose and weigh clients by nothing that only they know, or cap what they state",
        kinds=tuple(STATED),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        factor: Annotated[Amount, Field(description="what is stated over what is true")] = 10.0
        wait: Annotated[Amount, Field(description="simulated time for which an answer is held back")] = 0.0

    def late(self) -> float:
        return float(self.config.wait)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = dict(reply.message)
        for kind, names in STATED.items():
            if kind in message:
                stated = {}
                for k, v in message[kind].items():
                    stated[k] = state_number(v.double() * self.config.factor, v) if k in names else v
                message[kind] = stated
        return replace(reply, message=message)
