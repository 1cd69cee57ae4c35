"""The server: FedAvg. One line is the recorder's."""

import numpy as np
import torch
from fedaudit_recorder import GridTap
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from net import Net

from digits_app.client import keep
from digits_app.data import split

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_available_nodes=int(settings["nodes"]))
    strategy.start(
        grid=GridTap(grid, str(settings["record-dir"])),  # the one line
        initial_arrays=ArrayRecord(first(str(settings["initial"]))),
        num_rounds=int(settings["num-server-rounds"]),
    )
    keep(str(settings["truth-dir"]), "own", split(str(settings["split"]))[1])


def first(path: str) -> dict[str, torch.Tensor]:
    """The weights before the first round, from a file where one is named."""
    if path:
        with np.load(path) as file:
            return {k: torch.from_numpy(file[k]) for k in file.files}
    torch.manual_seed(7)
    return Net().state_dict()
