"""Ordinary federations that are drawn anew by a seed: frameworks, sites, names, sizes, types, servers, training.

A name tells what was drawn; SEED of the environment draws it again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tests.audit.importing import nets
from tests.audit.importing.inboxes import FedAdagrad, FedAdam, State, average, numbered, prefixed, typed
from tests.worlds import federations as of
from tests.worlds.drawn import SEED, draw_name
from tests.worlds.world import World, runs

COUNT = 16  # a fifth of the ordinary federations
SERVERS: Mapping[str, Callable[[], Any]] = {
    "FedAvg": lambda: average,
    "FedAvgM": of.momentum,
    "FedAdam": FedAdam,
    "FedAdagrad": FedAdagrad,
    "median": lambda: of.median,
    "trimmed mean": lambda: of.trimmed,
}
WAYS: Mapping[str, Callable[[State], State]] = {
    "as they are": lambda state: state,
    "by position": numbered,
    "below module.": prefixed("module."),
    "in float64": typed(np.float64),
    "in float16": typed(np.float16),
}
MODS: Mapping[str, Any] = {"no mod": None, "clipping": of.clip(0.7, 0), "noise": of.clip(1.0, 0.02)}
BESIDE: Mapping[str, Any] = {"nothing": of.no_more, "lists, texts and bytes": of.lists, "momenta": of.momenta}


def draw(rng: np.random.Generator) -> tuple[str, World]:
    sizes = [int(n) for n in rng.integers(20, 90, rng.integers(3, 8))]
    classes, rounds = int(rng.integers(6, 11)), int(rng.integers(1, 4))  # of fewer there are not enough digits
    framework = str(rng.choice(["flower", "nvflare"]))
    names = [draw_name(rng, k) for k in range(len(sizes))]
    server, way, mod, beside = (str(rng.choice([*d])) for d in (SERVERS, WAYS, MODS, BESIDE))
    make = (nets.Mlp, nets.Normed)[int(rng.integers(2))]
    make = nets.Mlp if server.startswith("FedAda") else make  # theirs make variances below 0
    optimiser, lr = ((torch.optim.SGD, 0.1), (torch.optim.SGD, 0.01), (torch.optim.AdamW, 0.01))[rng.integers(3)]
    heard = [sorted(rng.permutation(len(sizes))[: max(3, len(sizes) - 1)].tolist()) for _ in range(rounds)]
    training: dict[str, Any] = {"epochs": int(rng.integers(1, 5)), "optimiser": optimiser, "lr": lr}
    training |= {"serve": SERVERS[server](), "heard": partial(pick, heard), "smallest": 2}
    one = of.Recorded(
        data=partial(of.deal, sizes, int(rng.integers(1000)), classes),
        make=make,
        training=training,
        framework=framework,
        names=names,
        sends=WAYS[way],
        is_change=framework == "nvflare" and way != "by position",
        loss=bool(rng.integers(2)),
        more=BESIDE[beside],
        evaluates=of.evaluate if rng.integers(2) else None,
        protect=MODS[mod] or of.as_it_is,
        rounds=rounds,
    )
    told = (
        f"{framework}, {make.__name__}, {server}, {way}, {mod}, {beside}; {sizes} of {classes} classes at {names}"
    )
    told += f", {rounds} rounds of {training['epochs']} epochs of {optimiser.__name__} at {lr}"
    return told, of.brought(one, runs(false=of.LEAKS), None)  # a ReLU may see one person of few alone


def pick(heard: Sequence[Sequence[int]], t: int) -> Sequence[int]:
    return heard[t]


DRAWN: dict[str, World] = {}
for i in range(COUNT):
    told, world = draw(np.random.default_rng([SEED, i, 2]))
    DRAWN[f"SEED={SEED}, federation {i}: {told}"] = world
