"""Neurotoxin: a backdoor in weights that the others hardly move, so that it stays when the attacker has left.

Zhang et al. Neurotoxin: Durable Backdoors in Federated Learning. ICML 2022. arXiv:2206.10341, Algorithm 1: the
gradient is zero on the `spared` share of the weights that the last change of the shared model moved most, all
weights together. Nothing is known in the first round and nothing spared.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedaudit.attacks.poisoning._backdoors import Backdoors
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.threats.adversary import Card, Client, Constants, Params


class Neurotoxin(Backdoors):
    card = Card(
        title="Neurotoxin",
        source="arXiv:2206.10341, Alg. 1",
        does="leaves a backdoor that lasts after the attacker has gone",
        remedy="use a rule that selects or takes medians, and train on without the clients in doubt",
    )
    remembers = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        spared: Annotated[Share, Field(description="share of the weights that the attacker leaves alone")] = 0.1

    def correct(self, client: Client, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        known = [k for k in grads if k in client.before]
        if not known or not self.config.spared:
            return grads
        moved = {k: (start[k] - client.before[k].to(start[k])).abs() for k in known}
        sizes = torch.cat([v.flatten() for v in moved.values()])
        keep = len(sizes) - round(self.config.spared * len(sizes))
        bar = sizes.kthvalue(keep).values if keep else sizes.new_tensor(-1.0)
        return grads | {k: grads[k] * (moved[k] <= bar) for k in known}
