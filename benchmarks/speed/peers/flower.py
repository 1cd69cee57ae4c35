"""FedAvg in Flower's simulation: as many Ray actors as cores, of one thread."""

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.speed.peers.contract import Turns, Workload, cores, read
from benchmarks.speed.peers.networks import Small

client_app, server_app = ClientApp(), ServerApp()


@lru_cache
def workload() -> Workload:
    """Read once in each actor."""
    torch.set_num_threads(1)
    return read(os.environ["WORKLOAD"])


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    work, model, client = workload(), Small(), int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    work.train(model.to(work.device), client)
    metrics = MetricRecord({"num-examples": work.each, "client": client})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(model.cpu().state_dict()), "metrics": metrics}),
        reply_to=message,
    )


class Rounds(FedAvg):
    """FedAvg with the cohorts of the file, at the bench's turns."""

    def __init__(self, work: Workload, turns: Turns) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=work.clients)
        self._work, self._turns = work, turns
        self._nodes: dict[int, int] = {}  # of each client; the replies of the first round say

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self._turns.begin():
            raise EOFError
        if server_round == 1:
            return list(super().configure_train(server_round, arrays, config, grid))
        content = RecordDict({"arrays": arrays, "config": config})
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=self._nodes[client])
            for client in self._work.cohorts[server_round - 1]
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if failed := [r.error for r in replies if r.has_error()]:
            raise RuntimeError(f"{len(failed)} clients failed: {failed[0]}")
        if server_round == 1:
            self._nodes = {int(r.content["metrics"]["client"]): r.metadata.src_node_id for r in replies}
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        model = Small()
        model.load_state_dict(arrays.to_torch_state_dict())
        self._turns.end(model)
        return arrays, metrics


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, _: Context) -> None:
    work = workload()
    turns = Turns(work)
    turns.ready(version("flwr"), f"{cores()} Ray actors on {work.device}")
    strategy = Rounds(work, turns)
    arrays = ArrayRecord(work.network().cpu().state_dict())
    try:
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=len(work.cohorts))
    except EOFError:
        return  # the bench is over


def main() -> None:
    os.environ["WORKLOAD"] = sys.argv[1]
    run_simulation(
        server_app,
        client_app,
        workload().clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 1 / cores() if workload().device == "cuda" else 0.0},
            "init_args": {"num_cpus": cores(), "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    from benchmarks.speed.peers import flower

    flower.main()  # whose functions actors can import by name
