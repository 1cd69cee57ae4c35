"""FedPer: the base of the model is averaged, the last layer stays with each client.

Arivazhagan, Aggarwal, Singh, Choudhary. Federated Learning with Personalization Layers. 2019.
arXiv:1912.00818, Algorithms 1 and 2.

Differs from FedAvg in what is sent: with the model split into base and personal layers,

    base <- sum_k p_k base_k,    personal layers of client k: trained with the base, never sent

so with no personal layers (`private: []`) it is FedAvg, bit for bit. The paper lets every client draw
its personal layers at random; here all start from the initial model's, which is known to everybody.
"""

from dataclasses import replace

from fedaudit.fl.families.split import SplitMethod
from fedaudit.fl.methods.fedavg import FedAvg


class FedPer(SplitMethod):
    card = replace(
        FedAvg.card,
        title="FedPer",
        source="arXiv:1912.00818, Alg. 1 and 2",
        text="Clients share and average all layers but the last, which each keeps for itself.",
    )
