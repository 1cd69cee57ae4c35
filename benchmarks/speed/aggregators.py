"""What rules of the server cost: share of a round of training, and seconds and memory with many large uploads.

`python -m benchmarks.speed.aggregators`. The round is FedAvg on 20 clients of 150 images of 28 x 28 with the mlp
of 199,210 weights, E = 2, batches of 32, in this process; the rule's seconds are its own adding of uploads and
its value. The large uploads are 100 models of 4.4 million random weights, 1.64 GiB as rows; every rule has a
process of its own, so that its peak of memory is its own. Seconds are of processors: with two of them a rule
takes half.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from benchmarks.speed.workload import WORKLOADS, Workload, workload
from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Context
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.plugin import configure, load, names
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.workers import start
from fedaudit.fl.wire.wire import Wire

CLIENTS, EACH, ASSUMED = 20, 150, 4
MANY, WEIGHTS = 100, 4_400_000
NEED_MORE = ("mean", "fltrust")  # the mean holds no rows, and fltrust trains on the server's examples
# A rule inside these is told f by its own settings
INSIDE = {"bucketing": {"rule": "median"}, "clipping": {"rule": "median"}}


class Timed(Aggregation):
    """An aggregation whose processor seconds are counted."""

    def __init__(self, inside: Aggregation) -> None:
        super().__init__(inside.context)
        self.inside, self.seconds = inside, 0.0

    def add(
        self, client: int, upload: Mapping[str, torch.Tensor], weight: float, start: Mapping[str, torch.Tensor]
    ) -> None:
        began = time.process_time()
        self.inside.add(client, upload, weight, start)
        self.seconds += time.process_time() - began
        self.total = self.inside.total

    def value(self) -> State:
        began = time.process_time()
        found = self.inside.value()
        self.seconds += time.process_time() - began
        self.state, self.kept = self.inside.state, self.inside.kept
        return found


class Watched(Aggregator):
    """A rule that remembers its aggregations."""

    def __init__(self, rule: Aggregator) -> None:
        self.rule, self.title, self.seen = rule, rule.title, list[Timed]()

    def begin(self, context: Context) -> Timed:
        self.seen.append(Timed(self.rule.begin(context)))
        return self.seen[-1]


def rule(name: str, f: int) -> Aggregator:
    """A rule told f, where it takes it."""
    found = load("fedaudit.fl.aggregators", name, Aggregator)
    takes = "f" in getattr(found.Config, "__dataclass_fields__", {})
    made: Aggregator = configure(found, {**({"f": f} if takes else {}), **INSIDE.get(name, {})}, "aggregator")
    return made


def in_a_round(name: str, rounds: int, work: Workload) -> tuple[float, float]:
    """Processor seconds of a round without the rule and of the rule, medians of `rounds`."""
    streams, watched = Streams(7), Watched(rule(name, ASSUMED))
    order = np.random.default_rng(1).permutation(len(work.data.train))[: CLIENTS * EACH]
    holdings = Holdings(work.data, np.split(order, CLIENTS), streams)
    model, everybody = (
        load("fedaudit.fl.models", "mlp", Net),
        load("fedaudit.fl.availability", "bernoulli", Availability),
    )
    settings = {"rounds": rounds + 1, "local_epochs": 2, "batch_size": 32, "lr": 0.05}
    method = configure(load("fedaudit.fl.methods", "fedavg", RoundMethod), settings, "method")
    shape = work.data.train.x.shape[1:]
    network = partial(model, shape, len(work.data.classes), model.Config())
    site = partial(build_site, method, holdings, network, "cpu")
    first = state_of(initialise(network, streams))
    with start(0, site) as pool:
        federation = Federation(
            holdings=holdings,
            initial=first,
            availability=configure(everybody, {"p": 1.0}, "availability"),
            aggregator=watched,
            wire=Wire(method.card, streams),
            workers=pool,
        )
        method.open(federation)
        state, whole = method.start(federation), []
        for t in range(rounds + 1):
            began = time.process_time()
            state = method.round(t, state, {}, federation)
            whole.append(time.process_time() - began)
    own = [s.seconds for s in watched.seen]
    # the first round warms up
    return float(np.median([w - o for w, o in zip(whole[1:], own[1:], strict=True)])), float(np.median(own[1:]))


def many_large(name: str) -> tuple[float, float]:
    """Processor seconds of a round of large uploads, and the process's peak of memory in GiB."""
    made = Timed(
        rule(name, MANY // 5).begin(
            Context(round=0, name="model", streams=Streams(7), state={}, parameters=(), head=("w",))
        )
    )
    generator = torch.Generator().manual_seed(1)
    for k in range(MANY):
        made.add(k, {"w": torch.randn(WEIGHTS, generator=generator)}, 1.0, {})
    made.value()
    return made.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def apart(name: str) -> tuple[float, float]:
    """many_large() in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(many_large, (name,))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.aggregators", description=__doc__)
    parser.add_argument(
        "--rules", nargs="+", default=[n for n in names("fedaudit.fl.aggregators") if n not in NEED_MORE]
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds measured of each")
    parser.add_argument("--only", choices=["round", "large"], help="one of the two tables")
    options = parser.parse_args()
    if options.only != "large":
        work = workload(WORKLOADS["small"])
        print(f"{CLIENTS} clients x {EACH} images, mlp, f = {ASSUMED}: processor s, median of {options.rounds}")
        print(f"{'':<20}{'round':>9}{'rule':>9}{'added to a round':>18}")
        base = in_a_round("mean", options.rounds, work)[1]
        for name in options.rules:
            round, own = in_a_round(name, options.rounds, work)
            print(f"{name:<20}{round:>9.3f}{own:>9.3f}{(own - base) / (round + base):>18.1%}", flush=True)
    if options.only != "round":
        print(f"\n{MANY} uploads of {WEIGHTS:,} weights, f = {MANY // 5}")
        print(f"{'':<20}{'processor s':>13}{'peak, GiB':>11}")
        for name in options.rules:
            seconds, peak = apart(name)
            print(f"{name:<20}{seconds:>13.2f}{peak:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
