"""FedAvg: clients train the global model on their own data, the server averages what comes back.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017. arXiv:1602.05629, Algorithm 1.

    w <- sum_k p_k w_k,    p_k = n_k / sum of n_j over the clients heard

It is RoundMethod with its defaults; everything else is described by how it differs from this. What fine-tuning on
own examples makes of the model may be evaluated at the end (fl/families/fine_tuning.py).
"""

from fedaudit.fl.families.fine_tuning import FineTuning
from fedaudit.fl.method import Card


class FedAvg(FineTuning):
    card = Card(
        title="FedAvg",
        source="arXiv:1602.05629, Alg. 1",
        text="Clients train the shared model on their own data for a few epochs; the server "
        "averages the models they return, weighted by how many examples each holds.",
    )
