"""FedAvg in FedLab across processes: a server, and one process of serial clients for each core."""

import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version

import torch
from torch import Tensor

from benchmarks.speed.peers.contract import Turns, Workload, cores, read

try:
    import torchvision  # noqa: F401 - as FedLab does, for data sets
except RuntimeError:  # a build for another torch, whose operators are not declared; fl/runtime/vision.py says why
    _library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager


class Part:
    """The examples of the clients of one process, which counts them from 0."""

    def __init__(self, work: Workload, first: int) -> None:
        self._work, self._first = work, first

    def get_dataloader(self, client: int, batch_size: int) -> list[tuple[Tensor, Tensor]]:
        return list(self._work.batches(self._first + client))


class Server(SyncServerHandler):
    """FedLab's synchronous server with the cohorts of the file, at the bench's turns."""

    def __init__(self, work: Workload, turns: Turns) -> None:
        super().__init__(work.network(), global_round=len(work.cohorts), sample_ratio=1.0)
        self._cohorts, self._turns = work.cohorts, turns

    @property
    def if_stop(self) -> bool:
        """FedLab asks this before each round."""
        return self.round >= self.global_round or not self._turns.begin()

    @property
    def num_clients_per_round(self) -> int:
        return len(self._cohorts[self.round])

    def sample_clients(self) -> list[int]:
        return self._cohorts[self.round]

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        super().global_update(buffer)
        self._turns.end(self._model)


def shares(clients: int, processes: int) -> Iterator[range]:
    """The clients of each process."""
    for i in range(processes):
        yield range(clients * i // processes, clients * (i + 1) // processes)


def main() -> None:
    torch.set_num_threads(1)
    work, processes = read(sys.argv[1]), cores()
    if work.device != "cpu":
        raise RuntimeError("FedLab forks its clients, and CUDA works in no fork")
    turns = Turns(work)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1", str(free.getsockname()[1])
    for rank, own in enumerate(shares(work.clients, processes), start=1):
        trainer = SGDSerialClientTrainer(work.network(), len(own))
        trainer.setup_dataset(Part(work, own[0]))
        trainer.setup_optim(work.epochs, work.batch_size, work.settings["lr"])
        trainer.optimizer = work.optimiser(trainer.model.parameters())
        PassiveClientManager(DistNetwork(address, processes + 1, rank), trainer).start()
    server = SynchronousServerManager(DistNetwork(address, processes + 1, 0), Server(work, turns))
    turns.ready(version("fedlab"), f"{processes} processes of 1 thread, and the server's")
    server.run()


if __name__ == "__main__":
    main()
