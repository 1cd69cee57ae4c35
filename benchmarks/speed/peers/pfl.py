"""FedAvg in pfl-research: SimulatedBackend, one process a core; torchrun starts them."""

import sys
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import HyperParam, NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.speed.peers.contract import Turns, Workload, read


class Model(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.network = work.network()

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        self.network.train(not eval)
        return cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(x, y, eval)) * len(y), len(y))}


class Rounds(TrainingProcessCallback, HyperParam):
    """The cohorts of the file: their size as pfl asks for it, their clients one by one, and the bench's turns."""

    def __init__(self, work: Workload, rank: int) -> None:
        self._work, self._rank = work, rank
        self._turns = Turns(work) if rank == 0 else None
        self._round, self._drawn = -1, 0

    def value(self) -> int:
        return len(self._work.cohorts[self._round])

    def __call__(self) -> int:
        """The next client. pfl draws one a process at a time, and so may draw more than a cohort has."""
        cohort = self._work.cohorts[self._round]
        self._drawn += 1
        return cohort[(self._drawn - 1) % len(cohort)]

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        if self._turns is not None:
            self._turns.ready(
                version("pfl"), f"{pytorch_ops.distributed.world_size} processes on {self._work.device}"
            )
        self._await()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if self._turns is not None:
            self._turns.end(model.pytorch_model.network)
        return not self._await(), Metrics()

    def _await(self) -> bool:
        """Every process waits until the first one is asked for a round."""
        asked = torch.tensor([float(self._turns is not None and self._turns.begin())], device=self._work.device)
        pytorch_ops.distributed.all_reduce([asked])
        self._round, self._drawn = self._round + 1, 0
        return bool(asked.item())


def main() -> None:
    torch.set_num_threads(1)
    np.random.seed(0)  # pfl draws its seeds from it, on all processes alike
    work = read(sys.argv[1])
    rounds = Rounds(work, pytorch_ops.distributed.global_rank)
    dataset = FederatedDataset(lru_cache(None)(lambda client: Dataset(work.examples(client))), rounds)
    model = Model(work)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=len(work.cohorts),
            evaluation_frequency=len(work.cohorts) + 1,
            train_cohort_size=rounds,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=dataset, val_data=None, postprocessors=[]),
        model=PyTorchModel(model, work.optimiser, torch.optim.SGD(model.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=work.batch_size,
            local_num_epochs=work.epochs,
            local_learning_rate=work.settings["lr"],
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[rounds],
    )


if __name__ == "__main__":
    main()
