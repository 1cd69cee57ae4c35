"""FedAvg with distillation: models are averaged, and mean outputs by class are exchanged besides.

A hybrid of FedAvg (arXiv:1602.05629, Alg. 1) and FD (Jeong et al. 2018, arXiv:1811.11479, Alg. 1).
The comparison in the FedRS paper (doi:10.1145/3447548.3467254) needs one: FD has no global model whose
accuracy could be reported there. What its authors ran is not stated; this is our reading.

    client k minimises, from the global model, CE(z, y) + gamma * CE(z, row y of the others' table)

so gamma = 0 is FedAvg, bit for bit (tables are still sent). fl/families/distillation.py has the tables.
"""

from dataclasses import replace

from fedaudit.fl.families.distillation import Distilling
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg


class FedAvgFD(Distilling):
    card = replace(
        FedAvg.card,
        title="FedAvg with distillation",
        needs="classes",
        source="after arXiv:1811.11479, Alg. 1",
        text="FedAvg whose clients also exchange the average output of their model for each class, "
        "and learn from the others' averages.",
        downlink=(Kind.GLOBAL_MODEL, Kind.GLOBAL_LOGIT_TABLE),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.MEAN_LOGIT_TABLE),
    )
