"""No member of the adaptive attacker's family beats it: pairs of a rule and a partition, five paired seeds each.

`python -m tests.attacks.poisoning.test_worst_of_its_family FROM TO` prints draws FROM to TO of the sixty.
"""

import dataclasses
import random
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.poisoning.adaptive import FAMILY, write_whole
from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import OwnedLabels
from fedaudit.fl.models.mlp import MLP
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from tests.attacks.poisoning.test_adversaries import adversary
from tests.fl.test_all_methods import method
from tests.fl.worlds import run

SEED, DRAWS, SEEDS = 32, 60, (1, 2, 3, 4, 5)
CLIENTS, MALICIOUS, IMAGES, ROUNDS = 10, 2, 500, 5
MOST = 0.03
RULES: tuple[Any, ...] = (
    *(
        "mean",
        "median",
        "trimmed_mean",
        "krum",
        "multi_krum",
        "geometric_median",
        "centered_clipping",
        "norm_bound",
    ),
    *("dnc", "mda", "monna", "mean_around_median", "caf", "sign_guard", "fl_detector", "robust_learning_rate"),
    *("clipped_clustering", "deep_sight", "crfl", "flame", "foolsgold", "sign_majority", "capped_mean"),
    *({"name": "nnm", "rule": r} for r in ("trimmed_mean", "krum")),
    *({"name": "bucketing", "rule": r} for r in ("median", "krum")),
)
PARTITIONS: tuple[Any, ...] = (
    "iid",
    {"name": "n_class_exhaustive", "classes_per_client": 2},
    {"name": "dirichlet", "alpha": 0.3},
    {"name": "dirichlet", "alpha": 1.0},
)
# Draws of which a member took over three points more than the adaptive attacker, by number: what it was
EXCEPTIONS: dict[int, str] = {}


def draw() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The sixty, in their order."""
    pairs = [(write_whole(r), write_whole(p)) for r in RULES for p in PARTITIONS]
    return random.Random(SEED).sample(pairs, DRAWS)


@cache
def digits() -> Data:
    data: Data = catalog.load("datasets", "digits")().load()
    return dataclasses.replace(data, train=Arrays(x=data.train.x[:IMAGES], y=data.train.y[:IMAGES]))


def configured(shelf: str, settings: dict[str, Any]) -> Any:
    cls = catalog.load(shelf, settings["name"])
    assumed = {"f": MALICIOUS} if any(f.name == "f" for f in dataclasses.fields(cls.Config)) else {}
    return configure(cls, assumed | {k: v for k, v in settings.items() if k != "name"}, shelf)


def accuracy(pair: tuple[dict[str, Any], dict[str, Any]], seed: int, attack: dict[str, Any]) -> float:
    """Of the last model, with the last clients malicious; a name of "" is nobody."""
    data, bad = digits(), tuple(range(CLIENTS - MALICIOUS, CLIENTS))
    rng = Streams(seed).numpy("partition")
    index = configured("partitions", pair[1]).split(OwnedLabels(data.train.y, 10), CLIENTS, rng)
    settings = {k: v for k, v in attack.items() if k != "name"}
    world = run(
        method("fedavg", rounds=ROUNDS, local_epochs=2, batch_size=16, lr=0.1, weighting="uniform"),
        d=data,
        index=index,
        script=[(tuple(range(CLIENTS)), tuple(k for k in range(CLIENTS) if len(index[k])))] * ROUNDS,
        seed=seed,
        make=lambda: MLP(data.shape, 10, MLP.Config(hidden=(64,))),
        aggregator=configured("aggregators", pair[0]),
        adversary=adversary(attack["name"], clients=bad, **settings) if attack["name"] else None,
    )
    return float(world.history[-1]["accuracy"])


def compare(number: int, seeds: tuple[int, ...] = SEEDS) -> tuple[float, float, float, str]:
    """Mean accuracy with nobody malicious, under the adaptive attacker, under its worst member, and that one."""
    pair = draw()[number]

    def mean(attack: dict[str, Any]) -> float:
        return float(np.mean([accuracy(pair, s, attack) for s in seeds]))

    members = {repr(m): mean(write_whole(m)) for m in FAMILY}
    worst = min(members, key=members.__getitem__)
    return mean({"name": ""}), mean({"name": "adaptive"}), members[worst], worst


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(0, DRAWS, 15))
def test_no_member_of_its_family_takes_three_points_more_than_the_adaptive_attacker(number: int) -> None:
    clean, own, least, member = compare(number)
    assert own <= clean + MOST
    assert own <= least + MOST or EXCEPTIONS.get(number) == member, (draw()[number], own, least, member)


if __name__ == "__main__":
    for number in range(*map(int, sys.argv[1:3])):
        clean, own, least, member = compare(number)
        print(
            number,
            *draw()[number],
            f"{clean:.3f} {own:.3f} {least:.3f} {100 * (own - least):+.1f}",
            member,
            flush=True,
        )
