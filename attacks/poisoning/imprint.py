"""Imprint: a malicious server sends a model whose first dense layer sorts images into bins, one image a bin.

Fowl, Geiping, Czaja, Goldblum, Goldstein. Robbing the Fed: Directly Obtaining Private Data in Federated Learning
with Modified Models. ICLR 2022. arXiv:2110.13057, sec. 3. Every row of the layer measures the same thing, the
mean of its input; biases are quantiles of it, so that row i answers to images above the i-th. Weights of the next
layer are the same for every row, so all rows that an image reaches get the same gradient, and the difference of
two rows holds only the images between their quantiles: attacks/updates/imprint_recovery.py divides them out.

Changed: the paper puts a block of its own in front of the model; here the model's own first dense layer with a
bias takes its place, so that the architecture is what clients expect. The quantiles are those of a normal
distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero, Positive
from fedaudit.fl.threats.adversary import Adversary, Card, Message, Payload
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel


class Imprint(Adversary):
    card = Card(
        title="Imprint of images in updates",
        source="arXiv:2110.13057, sec. 3",
        does="makes clients' updates hold single images of theirs; the model learns nothing meanwhile",
        remedy="aggregate securely over many clients, let clients refuse models whose rows are alike, or train "
        "with dp_sgd",
        threat=ThreatModel(position=Position.SERVER, conduct=Conduct.MALICIOUS),
        aim=Aim.RECONSTRUCTION,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        first: Annotated[AtLeastZero, Field(description="the round from which the server tampers")] = 0
        centre: Annotated[
            float,
            Field(
                ge=-100,
                le=100,
                description="mean over images of what the rows measure, the mean input of the layer",
            ),
        ] = 0.0
        spread: Annotated[Positive, Field(description="its standard deviation")] = 0.3

    def tamper(self, round: int, message: Message, receivers: Sequence[int]) -> Message:
        if round < self.config.first or Kind.GLOBAL_MODEL not in message:
            return message
        model = message[Kind.GLOBAL_MODEL]
        return message | {Kind.GLOBAL_MODEL: imprint_model(model, self.config.centre, self.config.spread)}


def imprint_model(model: Payload, centre: float, spread: float) -> Payload:
    """The model with its first dense layer as a ramp of bins, and equal weights for all of them behind it."""
    dense = [k for k, v in model.items() if v.dim() == 2 and k.endswith("weight")]
    layer = next((k for k in dense if _bias(k) in model), None)
    behind = [k for k in dense if layer is not None and k != layer and model[k].shape[1] == len(model[layer])]
    if layer is None or not behind:
        raise UserError(
            "imprint needs a dense layer with a bias and one behind it, and the model has none",
            hint="choose a model such as mlp, or another adversary",
        )
    weight, bias, after = model[layer], model[_bias(layer)], model[behind[0]]
    place = (torch.arange(len(bias), dtype=torch.float64) + 0.5) / len(bias)
    ramp: Tensor = -(centre + spread * torch.special.ndtri(place))
    return dict(model) | {
        layer: torch.full_like(weight, 1 / weight.shape[1]),
        _bias(layer): ramp.to(bias.dtype),
        behind[0]: after.mean(dim=1, keepdim=True).expand_as(after).clone(),
    }


def _bias(weight: str) -> str:
    return weight.removesuffix("weight") + "bias"
