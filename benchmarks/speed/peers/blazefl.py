"""FedAvg in BlazeFL: one process with as many threads as cores; free-threaded where the interpreter is."""

import sys
import threading
from importlib.metadata import version
from typing import Any

import torch
from blazefl.contrib import (
    FedAvgBaseServerHandler,
    FedAvgDownlinkPackage,
    FedAvgThreadPoolClientTrainer,
    FedAvgUplinkPackage,
)
from blazefl.core import deserialize_model, serialize_model

from benchmarks.speed.peers.contract import Turns, Workload, cores, read
from benchmarks.speed.peers.networks import Small


class Selector:
    """BlazeFL asks this for each model."""

    def __init__(self, work: Workload) -> None:
        self._work = work

    def select_model(self, model_name: str) -> torch.nn.Module:
        return self._work.network().cpu()  # BlazeFL moves it


class Trainer(FedAvgThreadPoolClientTrainer):
    """BlazeFL's thread pool with the clients' own optimiser."""

    def __init__(self, work: Workload, **settings: Any) -> None:
        super().__init__(
            dataset=None, epochs=work.epochs, lr=work.settings["lr"], num_parallels=cores(), **settings
        )
        self._work = work

    def worker(
        self, cid: int, device: str, payload: FedAvgDownlinkPackage, stop_event: threading.Event
    ) -> FedAvgUplinkPackage:
        model = Small().to(device)
        deserialize_model(model, payload.model_parameters)
        self._work.train(model, cid)
        return FedAvgUplinkPackage(cid, serialize_model(model), self._work.each)


def main() -> None:
    torch.set_num_threads(1)
    work = read(sys.argv[1])
    turns = Turns(work)
    settings = {
        "model_selector": Selector(work),
        "model_name": "network",
        "num_clients": work.clients,
        "device": work.device,
        "batch_size": work.batch_size,
        "seed": 0,
    }
    trainer = Trainer(work, **settings)
    server = FedAvgBaseServerHandler(dataset=None, global_round=len(work.cohorts), sample_ratio=1.0, **settings)
    turns.ready(version("blazefl"), f"{cores()} threads on {work.device}, Python {sys.version.split()[0]}")
    for cohort in work.cohorts:
        if not turns.begin():
            return
        server.num_clients_per_round = len(cohort)
        trainer.local_process(server.downlink_package(), cohort)
        for package in trainer.uplink_package():
            server.load(package)
        turns.end(server.model)


if __name__ == "__main__":
    main()
