"""Golden trajectories: the batches that a public implementation saw, replayed through a method of ours.

numbers/ holds what public code computed on a tiny network, as numbers: the start, the order of every
pass over the data, and the state after each round (index.json says repository, commit and settings of
every case). A replay hands the given orders out in place of the streams' own permutations.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.execution.batched import WIDTH, Batched
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import start
from fedaudit.fl.wire.wire import Wire
from tests.fl.worlds import TinyNet

NUMBERS = Path(__file__).parent / "numbers"
PASSES = {"batches": "main", "head_batches": "head"}  # our streams, and the passes of the files
Found = dict[str, list[np.ndarray]]  # array of a case -> its value after every round


class Case(NamedTuple):
    """One trajectory: what its index says, and its arrays."""

    name: str
    entry: dict[str, Any]
    index: dict[str, Any]
    folder: Path

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return load_file(self.folder / self.entry["file"])


@cache
def read_index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "index.json").read_text())
    return found


def cases(kind: str = "trajectory") -> list[Case]:
    """All cases: clients of unequal size, and again of equal size (`equal`)."""
    return [
        Case(entry["case"], entry, index, folder)
        for folder in (NUMBERS, NUMBERS / "equal")
        for index in [read_index(folder)]
        for entry in index["cases"]
        if entry.get("kind", "trajectory") == kind
    ]


class NoBias(TinyNet):
    """The network whose head has no bias."""

    def __init__(self, shape: tuple[int, ...] = (1, 6, 6), classes: int = 4) -> None:
        super().__init__(shape, classes)
        self.head = nn.Linear(8, classes, bias=False)


NETWORKS: dict[str, Callable[[], TinyNet]] = {"tiny": TinyNet, "tiny-nobias": NoBias}


class Rows(torch.Generator):
    """A generator that carries the permutations to hand out, one a pass."""

    rows: Iterator[np.ndarray]


def permutation(n: int, *, generator: torch.Generator | None = None, **more: Any) -> torch.Tensor:
    """torch.randperm, but for generators with given rows."""
    if not isinstance(generator, Rows):
        return _randperm(n, generator=generator, **more)
    row = torch.from_numpy(next(generator.rows).astype(np.int64))
    assert len(row) == n
    return row


_randperm = torch.randperm


class Orders(Streams):
    """Streams whose passes over the data are given."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(0)
        self.arrays = arrays

    def torch(self, name: str, *keys: int | str) -> torch.Generator:
        if name not in PASSES:
            return super().torch(name, *keys)
        rows = Rows()
        rows.rows = iter(self.arrays["/".join(["order", PASSES[name], *map(str, keys)])])
        return rows


class Script(Availability):
    """The script of the files. Lost answers are either trained and then lost, or never given."""

    title = "script"

    def __init__(self, index: dict[str, Any], train_lost: bool) -> None:
        super().__init__()
        self.selected, self.lost, self.train_lost = index["selected"], index["lost"], train_lost

    def draw(self, round: int, candidates: Any, streams: Streams, attempt: int = 0) -> Participation:
        wanted = tuple(self.selected[round])
        away = () if self.train_lost else self.lost[round]
        return Participation(wanted, tuple(k for k in wanted if k not in away))

    def describe(self) -> str:
        return "a fixed script"


class Replayed(Federation):
    """Keeps the state after every round."""

    def end_round(self, round: int, rounds: int, model: Any, state: Tree, memory: Any, own: Any = tuple) -> None:
        self.seen.append(_state(model, state, memory, dict(own())))  # type: ignore[attr-defined]
        super().end_round(round, rounds, model, state, memory, own)


def _state(model: Any, state: Tree, memory: Any, own: Any) -> dict[str, np.ndarray]:
    """Everything a case may compare, under the names of its arrays."""
    found = {f"global/{k}": v for k, v in model.items()}
    found |= {f"own/{c}/{k}": v for c, weights in own.items() for k, v in weights.items()}
    found |= {f"control/server/{k}": v for k, v in state.get("control", {}).items()}
    for c, kept in memory.items():
        found |= {f"control/{c}/{k}": v for k, v in kept.get("control", {}).items()}
        found |= {f"dual/{c}/{k}": v for k, v in kept.get("dual", {}).items()}
    found |= {f"correction/server/{k}": v for k, v in state.get("correction", {}).items()}
    if prototypes := state.get("prototypes"):
        table = torch.full((4, prototypes["features"].shape[1]), float("nan"))
        table[prototypes["classes"]] = prototypes["features"]
        found["prototype/server/features"] = table
    return {k: v.detach().cpu().numpy().copy() for k, v in found.items()}


def replay(
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    *,
    stacked: bool = False,
    train_lost: bool = True,
    method: RoundMethod | None = None,
) -> Found:
    """Run the method of a case on its batches; the state after every round."""
    arrays, index = case.arrays, case.index
    held = load_file(case.folder / "data.safetensors")
    count = index["clients"]
    x = np.concatenate([held[f"client/{k}/x"] for k in range(count)])
    y = np.concatenate([held[f"client/{k}/y"] for k in range(count)])
    ends = np.cumsum([0, *(len(held[f"client/{k}/y"]) for k in range(count))])
    parts = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    some = Arrays(x=x[:8], y=y[:8])
    data = Data(train=Arrays(x=x, y=y), test=some, classes=tuple("abcd"), mean=(0.0,), std=(1.0,))
    method = method or configure(catalog.load("methods", case.entry["method"]), case.entry["config"], "method")
    holdings = Holdings(data, parts, Orders(arrays))
    initial = {k.removeprefix("initial/"): torch.from_numpy(v) for k, v in arrays.items() if k[:8] == "initial/"}
    site = partial(build_site, method, holdings, NETWORKS[case.entry["network"]], "cpu", None)
    monkeypatch.setattr(torch, "randperm", permutation)
    with Batched(site, WIDTH) if stacked else start(0, site) as pool:
        federation = Replayed(
            holdings=holdings,
            initial=initial,
            availability=Script(index, train_lost),
            wire=Wire(method.card, holdings.streams),
            workers=pool,
            empty_round="skip",
        )
        lost = index["lost"]
        monkeypatch.setattr(federation.attendance, "is_reply_lost", lambda round, client: client in lost[round])
        federation.seen = []  # type: ignore[attr-defined]
        method.run(federation)
    states: list[dict[str, np.ndarray]] = federation.seen  # type: ignore[attr-defined]
    return {name: [s.get(name) for s in states] for name in arrays}  # type: ignore[misc]


def differences(case: Case, found: Found) -> dict[str, float]:
    """Largest absolute difference by group; a value of ours that is missing or NaN is infinite."""
    worst = dict.fromkeys(case.entry["compare"], 0.0)
    compared = dict.fromkeys(worst, 0)
    for name, golden in case.arrays.items():
        group = name.split("/")[0]
        if group not in worst:
            continue
        for want, got in zip(golden, found[name], strict=True):
            there = ~np.isnan(want)
            if not there.any():
                continue
            compared[group] += 1
            gap = np.inf if got is None else np.abs(got - want)[there].max()
            worst[group] = max(worst[group], np.inf if np.isnan(gap) else float(gap))
    assert all(compared.values()), f"{case.name}: nothing to compare in {compared}"
    return worst
