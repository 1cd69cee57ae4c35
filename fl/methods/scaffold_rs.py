"""Scaffold/RS: SCAFFOLD whose local loss is FedRS's restricted softmax.

Li, Zhan. FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.
KDD 2021. doi:10.1145/3447548.3467254 (the combination is one of its compared methods).

Differs from SCAFFOLD (arXiv:1910.06378, Alg. 1) in the local gradient, which is that of cross-entropy on
s_c z_c as in fl/methods/fedrs.py. alpha = 1 is SCAFFOLD, bit for bit; the first round, in which all
control variates are zero, is FedRS with uniform weighting. The authors' code leaves out the factor
|S| / K of the server's control variate (`literal_public_code`) and takes server rates of 0.1 to 0.5.
"""

from dataclasses import replace

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.methods.fedrs import logit_scale
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.runtime.ranges import AtLeastOne, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle


class ScaffoldRS(Scaffold):
    card = replace(
        Scaffold.card,
        title="Scaffold/RS",
        needs="classes",
        source="doi:10.1145/3447548.3467254; arXiv:1910.06378, Alg. 1",
        text="SCAFFOLD whose clients also scale down the scores of classes they have no examples of.",
    )

    @settings
    class Config(Scaffold.Config):
        alpha: Share = Field(default=0.5, description="scale of the logits of missing classes; 1 is SCAFFOLD")
        soft: bool = Field(
            default=False, description="whether logits are scaled by class size, as the authors' code does"
        )
        missing_below: AtLeastOne = Field(default=1, description="a class with fewer examples counts as missing")

    def compute_constants(self, client: Client) -> Constants:
        c = self.config
        scale = logit_scale(client.counts, c.alpha, c.soft, c.missing_below)
        return {**super().compute_constants(client), "scale": scale}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return cross_entropy(net(x) * const["scale"], y)
