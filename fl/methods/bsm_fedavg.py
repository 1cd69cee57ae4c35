"""BSM-FedAvg: FedAvg with balanced softmax, corrected for each client's own class counts.

Ren, Yu, Sheng, Ma, Zhao, Yi, Li. Balanced Meta-Softmax for Long-Tailed Visual Recognition. NeurIPS
2020. arXiv:2007.10740, eq. 3, used in local training as ReBaFL's baseline does. Cross-entropy on
z + log pi with pi_c = n_{k,c} / n_k; a class the client lacks has log pi = -infinity and gets no
gradient. It is ReBaFL's re-balancing with epsilon = 0. A client of one class has loss 0 and moves only
by weight decay: that is a property, not an error. Evaluation uses the plain softmax.
"""

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import prior_shift
from fedaudit.fl.training.local import Constants, Handle


class BSMFedAvg(FedAvg):
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
