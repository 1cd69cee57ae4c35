"""What training measures is for the metrics: a server that decides by it is in the ledger, with no noise."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.federation import Federation
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.watched import MeasuredValues, Rows
from tests.fl.worlds import run

SETTINGS: dict[str, Any] = {"rounds": 3, "local_epochs": 1, "batch_size": 8}


class WhileLossIsLarge(Selection):
    """Of ChoosesByLoss."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        low = cast(Federation, choice.federation).tally.stats.get("train_loss", 9.0) < 0.1
        return Chosen([] if low else answering)


class ChoosesByLoss(FedAvg):
    """Lets nobody train any more once the loss of the last round is small."""

    card = replace(FedAvg.card, selection=WhileLossIsLarge)


class StopsByLoss(FedAvg):
    """Ends the run early where any statistic is large, after the first round."""

    def get_model(self, state: Tree) -> dict[str, Any]:
        self.large = any(v > 0 for v in getattr(self, "federation", Federation).tally.stats.values())
        return super().get_model(state)

    def open(self, federation: Federation) -> None:
        self.federation = federation
        super().open(federation)


class MostRows(Selection):
    """Of ChoosesByRows."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        order = sorted(answering, key=lambda k: -len(choice.federation.parts[k]))
        return Chosen(sorted(order[: max(1, len(order) // 2)]))


class ChoosesByRows(FedAvg):
    """Lets the half with the most examples train."""

    card = replace(FedAvg.card, selection=MostRows)


class WeighsByRows(FedAvg):
    """Looks at all rows before the first round."""

    def start(self, federation: Federation) -> Tree:
        self.sizes = [len(part) for part in federation.parts]
        return super().start(federation)


def told(folder: Path, kind: str = "training_statistics") -> list[Release]:
    return [r for r in read(folder / "ledger.jsonl") if r.kind == kind]


@pytest.mark.parametrize(("cls", "rounds"), [(ChoosesByRows, [0, 1, 2]), (WeighsByRows, [0]), (FedAvg, [])])
def test_a_server_that_looks_at_clients_rows_is_in_the_ledger(
    tmp_path: Path, cls: type[FedAvg], rounds: list[int]
) -> None:
    run(cls(cls.Config(**SETTINGS)), folder=tmp_path)
    found = told(tmp_path, "client_data")
    assert [r.round for r in found] == rounds
    assert all(r.mechanism == "none" and {"server", "public"} <= {*r.observers} for r in found)


def test_how_many_clients_there_are_is_no_look_at_them() -> None:
    rows = Rows([np.arange(3), np.arange(0)])
    assert len(rows) == 2 and not rows.read
    assert [len(r) for r in rows] == [3, 0] and rows.read


@pytest.mark.parametrize("cls", [ChoosesByLoss, StopsByLoss])
def test_a_server_that_reads_them_is_in_the_ledger(tmp_path: Path, cls: type[FedAvg]) -> None:
    run(cls(cls.Config(**SETTINGS)), folder=tmp_path)
    assert told(tmp_path) and all(r.mechanism == "none" and "server" in r.observers for r in told(tmp_path))


def test_a_server_that_does_not_is_not(tmp_path: Path) -> None:
    world = run(FedAvg(FedAvg.Config(**SETTINGS)), folder=tmp_path)
    assert not told(tmp_path)
    assert all("train_loss" in record for record in world.history)  # and the metrics have them


@pytest.mark.parametrize(
    "reads",
    [lambda m: m["a"], lambda m: m.get("a"), lambda m: list(m), lambda m: m.items(), lambda m: m.values()],
)
def test_every_way_of_reading_is_seen(reads: Any) -> None:
    measured = MeasuredValues(a=1.0)
    assert not measured.read
    reads(measured)
    assert measured.read


def test_a_run_that_nobody_reads_is_the_same_as_before() -> None:
    assert dict.items(MeasuredValues(a=1.0)) == {"a": 1.0}.items()
