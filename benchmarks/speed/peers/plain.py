"""FedAvg as most research code writes it: one process with all threads, deepcopy, averages of state_dict.

`FILE channels_last`: images and convolutions in that layout.
"""

import copy
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from benchmarks.speed.peers.contract import Turns, Workload, cores, read


def main() -> None:
    work = read(sys.argv[1])
    turns, model = Turns(work), work.network()
    torch.set_num_threads(cores())
    if sys.argv[2:] == ["channels_last"]:
        layout: Any = {"memory_format": torch.channels_last}
        model, work = model.to(**layout), replace(work, x=work.x.contiguous(**layout))
    turns.ready(
        torch.__version__,
        f"1 process of {torch.get_num_threads()} threads"
        if work.device == "cpu"
        else f"1 process, {work.device}",
    )
    for cohort in work.cohorts:
        if not turns.begin():
            return
        run_round(work, model, cohort)
        turns.end(model)


def run_round(work: Workload, model: nn.Module, cohort: Sequence[int]) -> None:
    states = []
    for client in cohort:
        local = copy.deepcopy(model)
        work.train(local, client)
        states.append(local.state_dict())
    model.load_state_dict({name: sum(s[name] for s in states) / len(states) for name in states[0]})


if __name__ == "__main__":
    main()
