"""Freeze_lie: clients that say they froze other layers than they did, and have some layers to themselves.

Against FreezeFL (fl/methods/freezefl.py), whose server averages each layer over those who sent it and believes
the count. With `mode`

    most    only the last layer is sent, turned round, as if all others were frozen
    none    all layers are sent with a count of 0, whatever the client had time for, to be drawn more often
    layer   the change of the first layer, which the fewest others send, is sent reversed and `scale` times
    late    what is sent is honest and comes `wait` units of time after it is done: the round lasts as long, the
            deadline T of the next ones rises by a share of it, and slow clients stop freezing

The other lies cost no time: the server's clock sees them, and a count that does not fit the arrays sent could be
refused. Ours, in the manner of layer-wise poisoning.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Message, Reply


class FreezeLie(Adversary):
    card = Card(
        title="Lies about frozen layers",
        source="ours, against FreezeFL, Alg. 1",
        does="turns round the layers that few others send, claims a part in all of them, or delays every round",
        remedy="average a layer over enough clients only, by a robust rule, check what is counted, and take the "
        "median of the times for the deadline",
        kinds=(Kind.UNFROZEN_LAYERS, Kind.FROZEN_COUNT),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        mode: Annotated[
            Literal["most", "none", "layer", "late"],
            Field(
                description="claim that most layers are frozen, or none, poison the first layers sent, or wait"
            ),
        ] = "layer"
        scale: Annotated[Amount, Field(description="how many times a reversed change is sent")] = 5.0
        wait: Annotated[
            Amount, Field(description="with mode: late, simulated time for which an answer is held back")
        ] = 5.0

    def late(self) -> float:
        return float(self.config.wait) if self.config.mode == "late" else 0.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        if self.config.mode == "late":
            return reply
        start = received.get(Kind.GLOBAL_MODEL, {})
        sent = dict(reply.message.get(Kind.UNFROZEN_LAYERS, {}))
        own = [k for k in start if k in sent and sent[k].is_floating_point()]
        if not own:
            return reply
        mode, count = self.config.mode, reply.message[Kind.FROZEN_COUNT]["count"]
        if mode == "none":
            sent, count = start | sent, torch.tensor(0)
        else:
            edge = own[-1] if mode == "most" else own[0]
            layer = [k for k in own if k.rpartition(".")[0] == edge.rpartition(".")[0]]
            for k in layer:
                turned = start[k].double() - self.config.scale * (sent[k].double() - start[k].double())
                sent[k] = turned.to(sent[k].dtype)
            if mode == "most":
                layers = dict.fromkeys(k.rpartition(".")[0] for k in start)
                sent, count = {k: sent[k] for k in layer}, torch.tensor(len(layers) - 1)
        message = {Kind.UNFROZEN_LAYERS: sent, Kind.FROZEN_COUNT: {"count": count}}
        return replace(reply, message=reply.message | message)
