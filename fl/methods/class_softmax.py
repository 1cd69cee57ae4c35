"""FedRS: clients train with a softmax corrected for how many examples of each class they have.

FedAvg, or SCAFFOLD, with another local loss: cross-entropy on s_c z_c + b_c, where s and b follow from the
client's class counts n_{k,c} and, but for the client's own training, nothing changes. The global model is
evaluated with the plain softmax.

    FedRS, Scaffold/RS    s_c = 1 for classes the client owns, alpha in [0, 1] for classes it misses
    BSM-FedAvg            b_c = log(n_{k,c} / n_k)
    FedLC                 b_c = -tau n_{k,c}^(-1/4)

Li, Zhan. FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data. KDD 2021.
doi:10.1145/3447548.3467254, Algorithm 1 (Scaffold/RS is one of its compared methods); Ren, Yu, Sheng, Ma, Zhao,
Yi, Li. Balanced Meta-Softmax for Long-Tailed Visual Recognition. NeurIPS 2020. arXiv:2007.10740, eq. 3, used in
local training as ReBaFL's baseline does; Zhang, Li, Li, Xu, Wu, Ding, Wu. Federated Learning with Label
Distribution Skew via Logits Calibration. ICML 2022. arXiv:2209.00189, eq. 6.

Restricted: alpha = 1 is the plain softmax, bit for bit, and small alpha keeps a missing class's row of the last
layer from being pushed away by examples of other classes. alpha = 0 is not a masked softmax: a missing class
still counts e^0 in the normaliser. `soft` is the authors' public code, s_c = alpha + (1 - alpha) n_{k,c} / max_j
n_{k,j}, which agrees with the printed rule only when all owned classes are equally large. The paper averages
clients uniformly and its code by samples; `weighting` chooses. That code also clips gradients at 100
(`grad_clip`) and takes five steps at least (`least_steps`). Changed: a client that falls short makes whole
passes more, where the code stops amid one. Heads with a bias have the whole logit scaled. The first round of
Scaffold/RS, in which all control variates are zero, is FedRS with uniform weighting; its authors' code leaves
out the factor |S| / K of the server's control variate (`literal_public_code`) and takes server rates of 0.1 to
0.5.

Shifted: a class that the client lacks has b = -infinity and gets no gradient. BSM-FedAvg is ReBaFL's
re-balancing with epsilon = 0; a client of one class has loss 0 and moves only by weight decay: that is a
property, not an error. FedLC leaves the true class out of the denominator in print, which others report to
collapse; it is kept unless `exclude_true_class`. tau = 0 with every class present is FedAvg; with missing
classes it is the softmax over the client's own classes. Its shifts use raw counts, so the same label
distribution with more data has smaller margins."""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import prior_shift
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, Params

PLUGINS = ("bsm_fedavg", "fedlc", "fedrs", "scaffold_rs")


class FedRS(FedAvg):
    """FedRS: clients hold back the softmax weights of classes they have no examples of."""

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
        c, counts = self.config, client.counts
        missing = counts < c.missing_below
        scale = torch.where(missing, c.alpha, 1.0)
        if c.soft:
            scale = (c.alpha + (1 - c.alpha) * counts.double() / counts.max()).float()
        return {**super().compute_constants(client), "scale": scale, "missing": missing}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return cross_entropy(net(x) * const["scale"], y)

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        grads, decay = super().correct(grads, params, start, const), self.config.weight_decay
        if not (self.config.freeze_missing_wd and decay):
            return grads
        # The optimiser adds decay * w to every gradient; take it off the missing classes' rows.
        return grads | {
            k: grads[k] - decay * params[k] * _expand(const["missing"], params[k])
            for k in self.head
            if k in grads
        }


class ScaffoldRS(FedRS, Scaffold):
    """Scaffold/RS: SCAFFOLD whose local loss is FedRS's restricted softmax."""

    card = replace(
        Scaffold.card,
        title="Scaffold/RS",
        needs="classes",
        source="doi:10.1145/3447548.3467254; arXiv:1910.06378, Alg. 1",
        text="SCAFFOLD whose clients also scale down the scores of classes they have no examples of.",
    )

    @settings
    class Config(Scaffold.Config, FedRS.Config):
        freeze_missing_wd: Literal[False] = Field(
            default=False, description="not here: control variates hold the weight decay of all rows"
        )


class BSMFedAvg(FedAvg):
    """BSM-FedAvg: FedAvg with balanced softmax, corrected for each client's own class counts."""

    card = replace(
        FedAvg.card,
        title="BSM-FedAvg",
        needs="classes",
        source="arXiv:2007.10740, eq. 3",
        text="FedAvg whose clients weigh classes by how often they occur in their own data, so that "
        "common classes do not push out rare ones.",
    )

    def compute_constants(self, client: Client) -> Constants:
        return {"shift": prior_shift(client.counts, epsilon=0.0)}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return cross_entropy(net(x) + const["shift"], y)


class FedLC(BSMFedAvg):
    """FedLC: FedAvg whose clients need larger margins for the classes they seldom see."""

    card = replace(
        FedAvg.card,
        title="FedLC",
        needs="classes",
        source="arXiv:2209.00189, eq. 6",
        text="FedAvg whose clients must be more certain of classes they have few examples of, and leave "
        "classes alone that they have none of.",
    )

    @settings
    class Config(LocalConfig):
        tau: Amount = Field(default=1.0, description="scale of the margins n ** (-1/4); 1 is the paper's")
        exclude_true_class: bool = Field(
            default=False, description="whether the true class is left out of the denominator, as printed"
        )

    def compute_constants(self, client: Client) -> Constants:
        counts = client.counts.double()
        shift = -self.config.tau * counts.clamp(min=1).pow(-0.25)
        shift = torch.where(counts > 0, shift, -torch.inf)
        # Only differences matter; with equal counts they are exact zeros
        return {"shift": (shift - shift.max()).float()}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not self.config.exclude_true_class:
            return super().loss(net, x, y, const)
        logits = net(x) + const["shift"]
        own = logits.gather(1, y[:, None])[:, 0]
        classes = torch.arange(logits.shape[1], device=y.device)
        others = logits.masked_fill(classes == y[:, None], -torch.inf)
        # A client of one class has no others, and nothing to tell its class from
        several = const["shift"].isfinite().sum() > 1
        others = torch.where(several, others, torch.zeros_like(others))
        loss: Tensor = torch.where(several, others.logsumexp(1) - own, torch.zeros_like(own))
        return loss.mean()


def _expand(mask: Tensor, like: Tensor) -> Tensor:
    """[C] as [C, 1, ...], to multiply the rows of `like`."""
    return mask.reshape(-1, *[1] * (like.dim() - 1))
