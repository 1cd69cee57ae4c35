"""Backdoors that hide: in the training itself, or among what colluding clients send."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge
from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.threats.adversary import Card, Client, Constants, Loss, Params
from fedaudit.fl.threats.threat import Aim

PLUGINS = ("alternating_minimisation", "three_d_fed")


class AlternatingMinimisation(Backdoors):
    """Alternating minimisation: steps for the backdoor, boosted, and steps that keep the update unsuspicious.

    Bhagoji, Chakraborty, Mittal, Calo. Analyzing Federated Learning through an Adversarial Lens. ICML 2019.
    arXiv:1811.12470, sec. 3.3: even steps descend on triggered images alone, `boost` times; odd ones on clean
    images with rho ||delta - delta_last|| added, where delta_last is the last change of the shared model. Nothing
    is known of it in the first round, and 0 is taken. Changed: one step each, where the paper takes one step for
    the backdoor and ten for stealth.
    """

    card = Card(
        title="Alternating minimisation",
        aim=Aim.BACKDOOR,
        source="arXiv:1811.12470, sec. 3.3",
        does="plants a backdoor by an update that is accurate and near to the last change of the model",
        remedy="use a rule that selects or takes medians; checks of accuracy and distance do not see it",
    )
    remembers = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        boost: Annotated[Positive, Field(description="how many times a step for the backdoor is taken")] = 5.0
        rho: Annotated[Amount, Field(description="weight of the distance to the last change")] = 1e-4

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        if client.step % 2:
            return loss(x, y)
        return loss(self.add_trigger(client, x), torch.full_like(y, self.config.target))

    def correct(self, client: Client, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        if not client.step % 2:
            return {k: self.config.boost * g for k, g in grads.items()}
        last = {
            k: client.start[k].to(start[k]) - client.before[k].to(start[k]) for k in grads if k in client.before
        }
        gaps = {k: params[k] - start[k] - last.get(k, torch.zeros_like(start[k])) for k in grads}
        length = torch.cat([v.flatten() for v in gaps.values()]).norm().clamp(min=1e-12)
        return {k: g + self.config.rho * gaps[k] / length for k, g in grads.items()}


class ThreeDFed(Colluding, Backdoors):
    """3DFed: backdoored updates of an honest length, under noise that is gone once the server adds them up.

    Li, Ye, Hu, Wei, Chen, Hu. 3DFed: Adaptive and Extensible Framework for Covert Backdoor Attack in Federated
    Learning. IEEE S&P 2023, sec. V: what a compromised client learnt is brought to at most the median honest
    norm, and a noise mask is added. Masks of the colluding clients add up to 0, and are as long as puts two
    forged updates `spread` times as far apart as two honest ones are in the median, so that they form no cluster.
    Left out: decoys, and the indicator by which the paper's attacker learns whether it was accepted; the lengths
    are known here. A single client has no mask.
    """

    card = Card(
        title="3DFed",
        aim=Aim.BACKDOOR,
        source="IEEE S&P 2023, sec. V",
        does="plants a backdoor by updates that are as long, and as far apart, as honest ones",
        remedy="use a rule that takes medians; clustering and bounds on norms do not see it",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config, Backdoors.Config):
        spread: Annotated[Amount, Field(description="distance of forged updates over that of honest ones")] = 1.0

    def forge(self, crowd: Crowd) -> Forge:
        masks = dict(zip(crowd.meeting.own, draw_masks(crowd, self.config.spread), strict=True))

        def forge(client: int) -> Tensor:
            change = crowd.compute_honest_update(client)
            factor = min(1.0, crowd.median_norm / max(float(change.norm()), 1e-300))
            return torch.add(masks[client], change, alpha=factor)

        return forge


def draw_masks(crowd: Crowd, spread: float) -> Tensor:
    """[m, P] noise that adds up to 0; their distances are those of honest changes, times spread."""
    m, size = crowd.malicious, crowd.honest.shape[1]
    if m < 2 or len(crowd.honest) < 2:
        return torch.zeros(m, size, dtype=torch.float64)
    noise = torch.randn(m, size, generator=crowd.meeting.rng, dtype=torch.float64)
    noise = noise - noise.mean(0)
    pairs = torch.pdist(noise).square().mean().sqrt().clamp(min=1e-300)
    wanted = spread * torch.pdist(crowd.honest).quantile(0.5)
    return noise * (wanted / pairs)
