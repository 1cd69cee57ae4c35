"""A contender of the bench (`benchmarks/speed/peers/contract.py`): a method of ours, `FILE METHOD WORKERS`."""

import sys
from functools import partial

import numpy as np

from benchmarks.speed.peers.contract import Turns, read
from benchmarks.speed.peers.networks import CLASSES
from benchmarks.speed.workload import LOCAL, SEED, network
from fedaudit import __version__
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.execution.batched import Batched, leave_uploads
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.wire import Wire


class Listed(Availability):
    """The cohorts of a workload file."""

    title = "as listed"

    def __init__(self, cohorts: list[list[int]]) -> None:
        self._cohorts = cohorts

    def draw(self, round: int, candidates: object, streams: Streams, attempt: int = 0) -> Participation:
        return Participation(tuple(self._cohorts[round]), tuple(self._cohorts[round]))

    def describe(self) -> str:
        return "listed clients"


def hold(path: str, streams: Streams) -> Holdings:
    """The federation of a workload file; its images are normalised where ours are, in the workers."""
    with np.load(path) as file:
        arrays = Arrays(x=file["x"], y=file["y"])
        clients, each = file["order"].shape
        mean, std = (tuple(map(float, file[name].flatten())) for name in ("mean", "std"))
    data = Data(
        train=arrays, test=arrays.take(np.arange(1)), classes=tuple(map(str, range(CLASSES))), mean=mean, std=std
    )
    return Holdings(data, np.split(np.arange(clients * each), clients), streams)


def federate(
    method: RoundMethod, holdings: Holdings, cohorts: list[list[int]], start: State, pool: worker_kinds.Workers
) -> Federation:
    """A federation of these cohorts, opened, of which nothing is kept."""
    federation = Federation(
        holdings=holdings,
        initial=start,
        availability=Listed(cohorts),
        wire=Wire(method.card, holdings.streams),
        workers=pool,
    )
    method.open(federation)
    leave_uploads(method, federation)
    return federation


def main() -> None:
    path, name, workers = sys.argv[1:]
    work, streams = read(path), Streams(SEED)
    turns, model = Turns(work), work.network()
    method = configure(
        load("fedaudit.fl.methods", name, RoundMethod), LOCAL | {"local_epochs": work.epochs}, "method"
    )
    holdings = hold(path, streams)
    site = partial(build_site, method, holdings, partial(network, work.name), work.device)
    stacked = work.device != "cpu"
    with Batched(site) if stacked else worker_kinds.start(int(workers), site) as pool:
        federation = federate(method, holdings, work.cohorts, dict(work.start), pool)
        state, memory = method.start(federation), dict[int, Tree]()
        turns.ready(
            __version__,
            f"clients stacked on {work.device}" if stacked else f"{workers} worker processes of 1 thread",
        )
        for t, cohort in enumerate(work.cohorts):
            if not turns.begin():
                return
            state = method.round(t, state, memory, federation)
            assert federation.tally.delivered == len(cohort)
            model.load_state_dict(state["model"])
            turns.end(model)


if __name__ == "__main__":
    main()
