"""The server: FedAvg of adapters. One line is the recorder's."""

import torch
from fedaudit_recorder import GridTap
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from net import list_adapters

from lora_app.client import keep, start
from lora_app.data import split

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    torch.manual_seed(7)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_available_nodes=int(settings["nodes"]))
    strategy.start(
        grid=GridTap(grid, str(settings["record-dir"]), uploads="adapter"),  # the one line
        initial_arrays=ArrayRecord(list_adapters(start(str(settings["base"])))),
        num_rounds=int(settings["num-server-rounds"]),
    )
    keep(str(settings["truth-dir"]), "own", split()[1])
