"""A whole Flower app: FedAdam on the server, BatchNorm in the network, digits of two classes at each client.

Two lines record: the import, and the GridTap. keep() writes the truth, for an auditor who may see it.
"""

from pathlib import Path

import numpy as np
import torch
from fedaudit_recorder import GridTap
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam
from net import Net
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

client = ClientApp()
server = ServerApp()
OWN = 400  # of nobody: the auditor's own


def examples(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one client, or with -1 of none."""
    x, y = load_digits(return_X_y=True)
    rows = np.arange(OWN) if part < 0 else OWN + np.flatnonzero(np.isin(y[OWN:], [2 * part, 2 * part + 1]))
    rows = rows if part < 0 else rows[: 120 + 10 * part]
    return torch.tensor(x[rows] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y[rows])


def keep(folder: str, name: str, part: int) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    x, y = examples(part)
    np.savez(Path(folder, f"{name}.npz"), x=x.numpy(), y=y.numpy())


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    part = int(context.node_config["partition-id"])
    keep(str(context.run_config["truth-dir"]), str(context.node_id), part)
    net, (x, y) = Net(), examples(part)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        for rows in torch.randperm(len(y)).split(16):
            if len(rows) > 1:  # a batch of one has no batch statistics
                steps.zero_grad()
                cross_entropy(net(x[rows]), y[rows]).backward()
                steps.step()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(1)
    settings = context.run_config
    strategy = FedAdam(fraction_evaluate=0.0, min_available_nodes=int(settings["nodes"]), eta=0.01)
    strategy.start(
        grid=GridTap(grid, str(settings["record-dir"])),
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(settings["num-server-rounds"]),
    )
    keep(str(settings["truth-dir"]), "own", -1)
