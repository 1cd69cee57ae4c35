"""Worlds that are drawn anew by a seed: sizes, classes, types of numbers, names and orders.

Nobody can tune to them. The seed is SEED of the environment, else the date. A name tells what was drawn.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.fl.runtime import plugin
from tests.audit.importing import nets
from tests.audit.importing.inboxes import Examples, State, Upload, counted, federate, record, record_truth
from tests.worlds.degenerate import audit, digits, sized
from tests.worlds.degenerate_records import UNTRIED, of
from tests.worlds.world import READY, World, either, runs

# Of generators, whose training takes minutes, and of texts
SLOW = {"fedlora", "ffa_lora", "flora", "hetlora", "gandalf", "sda_fl", "private_fl_gan", "feddpgan"}
COUNT = 9  # of each of two kinds; together a fifth of the degenerate worlds
SEED = int(os.environ.get("SEED") or datetime.now(UTC).strftime("%Y%m%d"))
METHODS = [name for name in plugin.names("fedaudit.fl.methods") if name not in SLOW]
LETTERS = "abzÅßøéñčŁДяφ東京ع 0123456789._-()'"
TYPES = (np.float16, np.float32, np.float64)
REFUSALS = ("example", "client", "class", "batch", "label")


def draw_sizes(rng: np.random.Generator) -> list[int]:
    """One to six clients of no, one, few or many examples; somebody holds some."""
    sizes = [
        int(rng.choice([0, 1, 2, rng.integers(3, 20), rng.integers(20, 60)])) for _ in range(rng.integers(1, 7))
    ]
    return sizes if any(sizes) else [1, *sizes[1:]]


def draw_simulated(rng: np.random.Generator) -> tuple[str, World]:
    """A federation of a config. Few attacks are tried, so that most stays open whoever takes part."""
    sizes, classes, name = draw_sizes(rng), int(rng.integers(2, 11)), str(rng.choice(METHODS))
    batch, rounds, lr = (
        int(rng.choice([1, 2, 7, 20, 500])),
        int(rng.integers(1, 3)),
        float(rng.choice([1e-6, 0.01, 0.3])),
    )

    def some_classes() -> Examples:
        x, y = digits(900)
        return x[y < classes], y[y < classes]

    method = {"name": name, "rounds": rounds, "batch_size": batch, "lr": lr}
    told = f"{name}, {sizes} examples of {classes} classes, {rounds} rounds in batches of {batch} at {lr}"
    brought = audit(some_classes, federation=sized(*sizes), method=method, attacks="auto")
    return told, World(brought, either(*REFUSALS, false=(READY, "contradicted *", "verified *", "refuted *")))


def draw_recorded(rng: np.random.Generator) -> tuple[str, World]:
    """An honest federation that was recorded, under names of its own, in an order and a type of its own."""
    clients = int(rng.integers(2, 6))
    kind = TYPES[rng.integers(len(TYPES))]
    names = [draw_name(rng, k) for k in range(clients)]
    x, y = digits(1200)
    own, rows = (x[:300], y[:300]), [*rng.permutation(np.arange(300, 1200))]
    parts: list[Examples] = []
    for _ in range(clients):
        held = rng.choice(10, int(rng.integers(1, 5)), replace=False)
        chosen = [r for r in rows if y[r] in held][: int(rng.integers(1, 41))]
        rows = [r for r in rows if r not in set(chosen)]
        parts.append((x[chosen], y[chosen]))
    order = rng.permutation(4)
    sizes = [len(p[1]) for p in parts]
    told = f"{names} of {sizes} examples, {np.dtype(kind).name}, arrays in order {order.tolist()}"
    write = partial(write_drawn, parts, own, names, kind, order, int(rng.integers(2**31)))
    return told, World(of(write), runs(false=(*UNTRIED, "contradicted *", "unread *")))


def draw_name(rng: np.random.Generator, client: int) -> str:
    """Of a site, in any script; no two are equal."""
    return "".join(rng.choice([*LETTERS], int(rng.integers(1, 12)))).strip(" .") + str(client)


def write_drawn(
    parts: Sequence[Examples],
    own: Examples,
    names: Sequence[str],
    kind: Any,
    order: Sequence[int],
    seed: int,
    folder: Path,
) -> None:
    rounds, final = federate(nets.Mlp, parts, rounds=2)

    def cast(state: State) -> State:
        arrays = [*state.items()]
        return {arrays[i][0]: arrays[i][1].astype(kind) for i in order}

    up: Callable[[State, Upload], Mapping[str, Any]] = lambda _, u: counted(cast(u.state), u.examples)  # noqa: E731
    record(folder, rounds, final, up=up, down=lambda s: {"global_model": cast(s)}, nodes=names)
    record_truth(folder, parts, own, names)
    path = folder / "inbox" / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    shuffled = [lines[i] for i in np.random.default_rng(seed).permutation(len(lines))]
    path.write_text("".join(json.dumps(line) + "\n" for line in shuffled))


def draw(seed: int) -> dict[str, World]:
    """The worlds of a seed."""
    found: dict[str, World] = {}
    for i in range(COUNT):
        for kind, make in enumerate((draw_simulated, draw_recorded)):
            told, world = make(np.random.default_rng([seed, i, kind]))
            found[f"SEED={seed}, {2 * i + kind}: {told}"] = world
    return found


DRAWN = draw(SEED)
