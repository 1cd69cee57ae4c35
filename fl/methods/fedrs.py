"""FedRS: clients hold back the softmax weights of classes they have no examples of.

Li, Zhan. FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.
KDD 2021. doi:10.1145/3447548.3467254, Algorithm 1.

Differs from FedAvg in the local loss: cross-entropy on scaled logits

    s_c z_c,    s_c = 1 for classes the client owns, alpha in [0, 1] for classes it misses

so alpha = 1 is FedAvg, bit for bit, and small alpha keeps a missing class's row of the last layer
from being pushed away by examples of other classes. alpha = 0 is not a masked softmax: a missing
class still counts e^0 in the normaliser. The global model is evaluated without scaling.

`soft` is the authors' public code, s_c = alpha + (1 - alpha) n_{k,c} / max_j n_{k,j}, which agrees
with the printed rule only when all owned classes are equally large. The paper averages clients
uniformly and its code by samples; `weighting` chooses. That code also clips gradients at 100 (`grad_clip`)
and takes five steps at least (`least_steps`). Changed: a client that falls short makes whole passes more,
where the code stops amid one. Heads with a bias have the whole logit scaled.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, Params


class FedRS(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedRS",
        needs="classes",
        source="doi:10.1145/3447548.3467254, Alg. 1",
        text="FedAvg whose clients scale down the scores of classes they have no examples of, so "
        "that their training does not unlearn those classes.",
    )

    @settings
    class Config(LocalConfig):
        alpha: Share = Field(
            default=0.5,
            description="scale of the logits of missing classes; 1 is the plain softmax; the paper searches "
            "{0, 0.1, 0.5, 0.9, 1}",
        )
        soft: bool = Field(
            default=False, description="whether logits are scaled by class size, as the authors' code does"
        )
        missing_below: AtLeastOne = Field(
            default=1, description="a class with fewer examples counts as missing; 20 for Shakespeare"
        )
        least_steps: AtLeastZero = Field(
            default=0,
            description="fewest steps of a client in a round, by whole passes more; 5 in the authors' code, "
            "0 means no such floor",
        )
        freeze_missing_wd: bool = Field(
            default=False, description="whether head rows of missing classes are spared the weight decay"
        )

    def compute_constants(self, client: Client) -> Constants:
        c = self.config
        scale = logit_scale(client.counts, c.alpha, c.soft, c.missing_below)
        return {"scale": scale, "missing": client.counts < c.missing_below}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return cross_entropy(net(x) * const["scale"], y)

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        decay = self.config.weight_decay
        if not (self.config.freeze_missing_wd and decay):
            return grads
        # The optimiser adds decay * w to every gradient; take it off the missing classes' rows.
        return grads | {
            k: grads[k] - decay * params[k] * _expand(const["missing"], params[k])
            for k in self.head
            if k in grads
        }


def logit_scale(counts: Tensor, alpha: float, soft: bool, missing_below: int) -> Tensor:
    """s [C] from the class counts [C] of a client."""
    if soft:
        return (alpha + (1 - alpha) * counts.double() / counts.max()).float()
    return torch.where(counts < missing_below, alpha, 1.0)


def _expand(mask: Tensor, like: Tensor) -> Tensor:
    """[C] as [C, 1, ...], to multiply the rows of `like`."""
    return mask.reshape(-1, *[1] * (like.dim() - 1))
