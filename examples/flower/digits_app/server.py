"""The server: FedAvg. One line is the recorder's."""

import numpy as np
import torch
from fedaudit_recorder import GridTap
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from net import Net

from digits_app.data import split

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(7)
    settings = context.run_config
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_available_nodes=8)
    strategy.start(
        grid=GridTap(grid, str(settings["record-dir"])),  # the one line
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(settings["num-server-rounds"]),
    )
    if settings["truth-dir"]:
        x, y = split()[1]
        np.savez(f"{settings['truth-dir']}/own.npz", x=x, y=y)
