"""FD: federated distillation; clients exchange mean outputs by class instead of models.

Jeong, Oh, Kim, Park, Bennis, Kim. Communication-Efficient On-Device Machine Learning: Federated
Distillation and Augmentation under Non-IID Private Data. 2018. arXiv:1811.11479, Algorithm 1.

Differs from FedAvg in what is exchanged (fl/families/distillation.py has the formulas): a table of mean outputs
by class instead of a model. Every client trains a model of its own, all starting from the initial
one. There is no global model: `accuracy` is the mean over the clients' models, each on the whole
test set. gamma = 0 is training alone. Left out: the paper's augmentation by a generator (FAug).
"""

from dataclasses import replace

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.distillation import Distilling
from fedaudit.fl.families.own_models import OwnModels
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class FD(OwnModels, Distilling):
    card = Card(
        title="Federated distillation",
        needs="classes",
        source="arXiv:1811.11479, Alg. 1",
        text="Clients keep their models and exchange only the average output of their model for "
        "each class, from which they learn besides their own labels.",
        downlink=(Kind.GLOBAL_LOGIT_TABLE,),
        uplink=(Kind.MEAN_LOGIT_TABLE,),
        release=(),
    )

    def broadcast(self, state: Tree) -> Message:
        return {}

    def average(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        for _ in deliveries:
            pass
        return state

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        table = {Kind.MEAN_LOGIT_TABLE: reply.message[Kind.MEAN_LOGIT_TABLE]}
        return replace(reply, message=table, memory={"own": trained.state})
