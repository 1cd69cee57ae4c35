"""Speed of training, as ratios measured in one run: ours, a plain PyTorch loop, peers, and the hardware's limit.

`make bench`, or `python -m benchmarks.speed.training small resnet18 --methods fedavg scaffold`. The workloads are
those of `benchmarks/speed/workload.py`: a small network in clients of 20 steps and of one, and real networks,
which peers do not run. The figure is client-samples per second: forward, backward and step, wall clock of whole
rounds without evaluation. Times alone mean nothing on a shared machine; the ratios do.

Every contender is a process of its own that reads the same workload file (`benchmarks/speed/peers/`), because
whatever else a process allocates changes how its allocator treats activations. All allocators are tuned as ours
is; those that `--as-shipped` names run once more without. In the first round, which is not timed, all clients
take part with the same batches, and every FedAvg must reach the same loss; later rounds have the same clients,
and ours draws other batches. Loss 1 is after the first round, the last one at the end.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import contenders, workload
from benchmarks.speed.contenders import PEERS, Contender, Row
from benchmarks.speed.peers import contract
from benchmarks.speed.peers.contract import wait_for
from fedaudit.fl.runtime import workers
from fedaudit.fl.runtime.machine import choose_device, cores

# How far a loss may be from the plain loop's, in shares of it: after the first round, with the same batches, and
# at the end, with others
SAME, SIMILAR = 0.002, 0.1


def measure_limits(device: str, flop: float, seconds: float = 1.0) -> dict[str, float]:
    """Client-samples of `flop` each per second if all ran like one large float32 kernel, on all cores or a GPU.

    A product `@` goes to MKL, which takes a slow path on some processors; convolutions go to oneDNN.
    """
    side, channels, image = 2048, 128, 28
    a, x = torch.rand(side, side, device=device), torch.rand(32, channels, image, image, device=device)
    w = torch.rand(channels, channels, 3, 3, device=device).contiguous(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    wide, kernel = a.t().reshape(1, side, side, 1), a.reshape(side, side, 1, 1)
    kernels: dict[str, tuple[float, Callable[[], Tensor]]] = {
        "matrix product": (2 * side**3, lambda: a @ a),
        "1 x 1 convolution": (2 * side**3, lambda: torch.conv2d(wide, kernel)),
        "3 x 3 convolution": (2 * 9 * x.numel() * channels, lambda: torch.conv2d(x, w, padding=1)),
    }
    threads, best = torch.get_num_threads(), dict.fromkeys(kernels, 0.0)
    torch.set_num_threads(cores())
    try:
        end = time.perf_counter() + seconds
        with torch.inference_mode():
            while time.perf_counter() < end:
                for name, (work, run) in kernels.items():
                    began = time.perf_counter()
                    run()
                    wait_for(device)
                    best[name] = max(best[name], work / (time.perf_counter() - began))
    finally:
        torch.set_num_threads(threads)
    return {name: speed / flop for name, speed in best.items()}


def describe_table(rows: Sequence[Row], ours: Row, plain: Row, limits: Sequence[dict[str, float]]) -> list[str]:
    """The lines of the table: medians over turns. Ratios to `ours` are of the same turn, with their range."""
    kernel, limit = max(
        ((name, float(np.median([one[name] for one in limits]))) for name in limits[0]), key=lambda pair: pair[1]
    )
    width = max(len(row.name) for row in rows) + 10
    header = f"{'samples/s':>11}{'of ours':>9}{'range':>11}{'of limit':>10}{'loss 1':>9}{'last':>7}  runs in"
    lines = [f"{'':<{width}}{header}"]
    for row in rows:
        title = f"{row.name} {row.version}".strip()
        if row.reason or not row.speeds:
            lines.append(f"{title:<{width}}    not run: {row.reason or 'no timed round'}")
            continue
        speed = float(np.median(row.speeds))
        ratios = [its / own for its, own in zip(row.speeds, ours.speeds, strict=False)] or [float("nan")]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(
            f"{title:<{width}}{speed:>11,.0f}{np.median(ratios):>9.2f}{spread:>11}{speed / limit:>10.0%}"
            f"{row.losses[0]:>9.4f}{row.losses[-1]:>7.3f}  {row.runs}{describe_difference(row, plain)}"
        )
    return [*lines, f"{kernel:<{width}}{limit:>11,.0f}{'':>20}{1:>10.0%}"]


def describe_difference(row: Row, plain: Row) -> str:
    """What shows that a FedAvg trains something else than the plain loop; empty where nothing does."""
    if not (row.averages and plain.losses and row.losses):
        return ""
    first, last = (abs(row.losses[i] / plain.losses[i] - 1) for i in (0, -1))
    return " - TRAINS SOMETHING ELSE" if not (first <= SAME and last <= SIMILAR) else ""


def name_device(device: str) -> str:
    return f"{cores()} cores" if device == "cpu" else f"{torch.cuda.get_device_name(device)}, {cores()} cores"


def choose_contenders(options: argparse.Namespace, size: workload.Size, file: Path) -> list[Contender]:
    """Ours, the plain loop and the peers of the command line."""
    plain = contenders.plain(file)
    if size.network != "small":
        coloured = [contenders.plain(file, "channels_last")] if size.network != "lora" else []
        return [contenders.method(size.method, file, options.workers, averages=True), plain, *coloured]
    pythons = {name: Path(path) for name, path in (one.split("=", 1) for one in options.python)}
    return [
        *(contenders.method(name, file, options.workers, name == size.method) for name in options.methods),
        plain,
        *(contenders.peer(name, file, pythons.get(name), options.device) for name in options.peers),
        *(
            contenders.plain(file, tuned=False)
            if name == "plain"
            else contenders.peer(name, file, pythons.get(name), options.device, tuned=False)
            for name in options.as_shipped
        ),
    ]


def compare(name: str, options: argparse.Namespace) -> None:
    """Run the contenders of a workload and print its table."""
    size, limits = workload.WORKLOADS[name], list[dict[str, float]]()
    work = workload.workload(size)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.npz"
        workload.write(file, work, options.epochs, options.rounds, options.device)
        title = work.name
        del work
        read = contract.read(str(file))
        flop = workload.count_flops(read.network(), read.x[: read.batch_size])
        del read
        chosen = choose_contenders(options, size, file)
        rows = contenders.race(
            chosen,
            [n * size.each * options.epochs for n in (size.clients, *[size.cohort] * options.rounds)],
            lambda: limits.append(measure_limits(options.device, flop)),
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    print(f"{name}: {title}; {size.cohort} of {size.clients} clients of {size.each}; E = {options.epochs};")
    print(
        f"torch {torch.__version__}, {name_device(options.device)}; median of {options.rounds} rounds in turns;"
    )
    print("glibc's allocator is tuned for all but those named as shipped\n")
    plain = next(row for row in rows if row.name == "plain loop")
    print("\n".join(describe_table(rows, rows[0], plain, limits)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.training", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(workload.WORKLOADS))
    parser.add_argument(
        "--methods", nargs="+", default=["fedavg", "scaffold", "rebafl"], help="of the small network; first: 1"
    )
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--as-shipped", nargs="*", default=["plain", "pfl"], choices=["plain", *PEERS])
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="PEER=PATH", help="another interpreter of a peer"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds measured of each")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--device", default="auto", type=choose_device, help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=workers.processes("auto", "cpu"))
    options = parser.parse_args()
    if unknown := sorted({*options.workloads} - {*workload.WORKLOADS}):
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(workload.WORKLOADS)}")
    for name in options.workloads or workload.WORKLOADS:
        compare(name, options)


if __name__ == "__main__":
    main()
