"""Correct noise under many seeds: how often an audit of it raises an alarm.

python -m benchmarks.null_audits.noise --count 200 --seed 1

Each run is a federation of a method, a law of participation and protections drawn at random, all of them shipped
and therefore right. An alarm is a bound that is refuted, or a finding about the noise or its ledger. The tests of
one audit fail correct noise with at most 1 %.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedaudit.attacks import stats
from fedaudit.audit.accounting.child import keep
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.bound import Status
from fedaudit.reports.result import AuditResult

STATED = 0.01  # of audits may raise an alarm
GAUSSIAN = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.5}
CENTRAL = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}
SGD = {"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 8}
LAPLACE = {"name": "laplace", "kinds": ["local_model"], "clip_norm": 1.0, "scale": 1.5}
CONTROL = {**GAUSSIAN, "kinds": ["local_model", "model_delta", "control_delta"]}
SHARES = [{**GAUSSIAN, "contributors": 3}, "secure_aggregation"]
COUNTS = {"name": "discrete_laplace", "scale": 2.0}
PRIVATE: dict[str, Sequence[Sequence[Any]]] = {
    # method -> lists of protections that leave it a bound
    "fedavg": (
        [GAUSSIAN],
        [CENTRAL],
        [GAUSSIAN, CENTRAL],
        [SGD],
        [LAPLACE],
        SHARES,
        [CENTRAL, "secure_aggregation"],
    ),
    "fedprox": ([GAUSSIAN], [CENTRAL], [SGD], [LAPLACE]),
    "fedopt": ([GAUSSIAN], [LAPLACE], [SGD]),
    "feddyn": ([GAUSSIAN], [LAPLACE]),
    "moon": ([GAUSSIAN],),
    "fedrs": ([GAUSSIAN],),
    "ditto": ([GAUSSIAN],),
    "fedper": ([GAUSSIAN],),
    "scaffold": ([CONTROL],),
    "fjord": ([GAUSSIAN],),
    "stc": ([GAUSSIAN],),
}
AVAILABILITY: Sequence[Any] = (
    "full",
    {"name": "bernoulli", "p": 0.5},
    {"name": "uniform", "count": 3},
    {"name": "persistent", "p": 0.5, "period": 2},
)


class Alarm(NamedTuple):
    """What an audit said of a correct run."""

    run: str
    what: str


def draw_config(number: int, seed: int) -> tuple[str, Config]:
    """The federation of one run, in words and as a config."""
    rng = random.Random(f"{seed}/{number}")
    method = sorted(PRIVATE)[number % len(PRIVATE)]
    protections = rng.choice(PRIVATE[method])
    availability = rng.choice(AVAILABILITY)
    weighting = (
        "samples" if method == "fedavg" and protections == [GAUSSIAN] and rng.random() < 0.5 else "uniform"
    )
    if weighting == "samples":
        protections = [*protections, COUNTS]
    names = [p if isinstance(p, str) else p["name"] for p in protections]
    chosen = availability if isinstance(availability, str) else availability["name"]
    config = {
        "seed": 1000 * seed + number,
        "device": "cpu",
        "workers": 0,
        "federation": {
            "dataset": "digits",
            "clients": rng.choice([4, 6]),
            "partition": rng.choice(["iid", {"name": "dirichlet", "alpha": 0.5}]),
            "availability": availability,
            "model": "mlp" if method in ("fjord", "fedper") else rng.choice(["logreg", "mlp"]),
            "limit": 160,
            "empty_round": "skip",
        },
        "method": {
            "name": method,
            "rounds": rng.choice([3, 4]),
            "local_epochs": 1,
            "batch_size": 20,
            "weighting": weighting,
        },
        "protections": list(protections),
        "attacks": [],
        "evaluate_every": 100,
    }
    return f"{number}: {method}, {' and '.join(names)}, {chosen}", Config.model_validate(config)


def audit(number: int, seed: int) -> tuple[list[Alarm], Counter[str]]:
    """The alarms of one run, and how many of its bounds have which status."""
    name, config = draw_config(number, seed)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        phases = ("simulate", "attack", "account", "score")
        execute(run, config, phases, lambda *_: None, skip_finished=True)
        result = AuditResult.model_validate_json(run.audit.read_bytes())
    alarms = [
        Alarm(name, f"towards {b.observer}: {b.reasons[0].sentence}")
        for b in result.bounds
        if b.status is Status.REFUTED
    ]
    lints = (f for f in result.findings if f.id.startswith("lint-"))
    alarms += [Alarm(name, f"{f.id}: {f.title}") for f in lints]
    return alarms, Counter(str(b.status) for b in result.bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description="alarms on correct noise")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    alarmed, statuses = 0, Counter[str]()
    with keep(), sharing():  # starting a process for each accountant would take longer than the audits
        for number in range(asked.count):
            alarms, bounds = audit(number, asked.seed)
            alarmed += bool(alarms)
            statuses += bounds
            for alarm in alarms:
                print(f"{alarm.run}: {alarm.what}", flush=True)
            print(f"{number + 1} of {asked.count}: {alarmed} with an alarm; bounds {dict(statuses)}", flush=True)
    low, high = stats.clopper_pearson(alarmed, asked.count, 0.05)
    print(
        f"{alarmed} of {asked.count} correct runs raised an alarm: {low:.1%} to {high:.1%}, stated {STATED:.0%}"
    )


if __name__ == "__main__":
    main()
