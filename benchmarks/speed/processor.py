"""Training in seconds of the processor, which other work on the machine takes nothing of.

`python -m benchmarks.speed.processor [WORKLOAD ...]`: samples per processor second of whole rounds on one thread,
ours, a plain loop, the same in channels_last, and the fastest product or convolution; medians of three rounds in
turns in one process, with ratios to ours. What several workers or threads gain is not in it: `training` has that.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed import workload
from benchmarks.speed.ours import federate, hold
from benchmarks.speed.peers import contract, plain
from benchmarks.speed.training import measure_limits
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.runtime import workers
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree

ROUNDS = 3
SIZES = {"small": (10, 1000), "one_step": (100, 50), "resnet18": (2, 50), "vit": (2, 50), "lora": (2, 100)}


def compare(name: str) -> str:
    """A row of the table."""
    clients, each = SIZES[name]
    size = workload.WORKLOADS[name]._replace(clients=clients, cohort=clients, each=each)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.npz"
        workload.write(file, workload.workload(size), 1, ROUNDS)
        work, holdings = contract.read(str(file)), hold(str(file), Streams(workload.SEED))
    flop = workload.count_flops(work.network(), work.x[: work.batch_size])
    method = configure(
        load("fedaudit.fl.methods", size.method, RoundMethod), workload.LOCAL | {"local_epochs": 1}, "method"
    )
    cohort, memory = [*range(clients)], dict[int, Tree]()
    layout: Any = {"memory_format": torch.channels_last}
    with workers.start(
        0, partial(build_site, method, holdings, partial(workload.network, work.name), "cpu")
    ) as pool:
        federation = federate(method, holdings, [cohort] * (ROUNDS + 1), dict(work.start), pool)
        state, done = method.start(federation), 0

        def run_ours() -> None:
            nonlocal state, done
            state, done = method.round(done, state, memory, federation), done + 1

        rounds: dict[str, Callable[[], None]] = {
            "ours": run_ours,
            "plain loop": partial(plain.run_round, work, work.network(), cohort),
        }
        if name != "lora":
            last = replace(work, x=work.x.contiguous(**layout))
            rounds["channels_last"] = partial(plain.run_round, last, last.network().to(**layout), cohort)
        speeds, limits = {k: list[float]() for k in rounds}, list[float]()
        for turn in range(ROUNDS + 1):  # of which the first warms up
            limits.append(max(measure_limits("cpu", flop, clock=time.process_time).values()))
            for k, run in rounds.items():
                began = time.process_time()
                run()
                if turn:
                    speeds[k].append(clients * each / (time.process_time() - began))
    ratios = {k: np.median([a / b for a, b in zip(v, speeds["ours"], strict=True)]) for k, v in speeds.items()}
    said = [f"{k} {np.median(v):,.0f} ({ratios[k]:.2f})" for k, v in speeds.items()]
    return f"{name}, {clients} clients of {each}: {', '.join(said)}, limit {np.median(limits):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.processor", description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[[], *SIZES], help=", ".join(SIZES))
    for name in parser.parse_args().workloads or SIZES:
        print(f"{compare(name)}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
