"""Count inflation: compromised clients claim more examples than they hold, and so weigh more.

Of this project; the weakness is noted by Blanchard et al. and in the weights of FedAvg itself (arXiv:1602.05629,
Algorithm 1). Every count that the client sends is multiplied by `factor`: of its examples, behind its prototypes,
of its classes. With `balanced` it claims equally many of each class, which a server that looks for even classes
takes first (Seol and Kim, Algorithm 2). What it trains is honest, so that nothing but the claim is wrong.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import state_number
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply
from fedaudit.fl.threats.threat import Aim

COUNTS = (Kind.NUM_EXAMPLES, Kind.PROTO_COUNTS, Kind.CLASS_VOLUME, Kind.LABEL_COUNTS)
ARRAYS = ("count", "counts")


class CountInflation(Adversary):
    card = Card(
        title="Inflated counts",
        aim=Aim.INTEGRITY,
        source="this project",
        does="makes the shared model that of one client, by what it claims to hold",
        remedy="cap the counts that clients claim: aggregator: capped_mean, or weigh clients alike",
        kinds=COUNTS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        factor: Annotated[
            Positive, Field(description="claimed counts over the true ones; 1 lies only if balanced")
        ] = 10.0
        balanced: Annotated[bool, Field(description="whether equally many of each class are claimed")] = False

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = dict(reply.message)
        for kind in COUNTS:
            if kind in message:
                payload = message[kind]
                claimed = {k: self._inflate(kind, v) if k in ARRAYS else v for k, v in payload.items()}
                message[kind] = claimed
        return replace(reply, message=message)

    def _inflate(self, kind: Kind, true: Tensor) -> Tensor:
        counts = true.double()
        if self.config.balanced and kind in (Kind.CLASS_VOLUME, Kind.LABEL_COUNTS):
            counts = counts.mean().expand(counts.shape)
        return state_number(counts * self.config.factor, true)
