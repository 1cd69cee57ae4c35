"""A run killed at any moment and continued leaves, file by file, what an uninterrupted run leaves.

Runs happen in forked processes that are killed with SIGKILL: before or after a chosen file appears,
in the middle of a line of a log, or from outside after a random time.
"""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.runtime.durable import Log
from tests.fl.worlds import Stopped, run

ROUNDS = 6
Sabotage = Callable[[], None]


class Remembers(FedAvg):
    """FedAvg whose clients remember: how often they were heard, and their last model."""

    def train(self, client: Client) -> Reply:
        heard = client.memory.get("heard", torch.tensor(0.0))
        trained = client.train(self, {})
        state = {k: v + 0.01 * heard for k, v in trained.state.items()}
        reply = self.finish(client, replace(trained, state=state))
        return replace(reply, memory={"heard": heard + 1, "last": state, "note": {"n": 1, "e": {}}})


def simulate(folder: Path, workers: int = 0, sabotage: Sabotage | None = None) -> None:
    torch.set_num_threads(1)
    if sabotage is not None:
        sabotage()
    method = Remembers(FedAvg.Config(rounds=ROUNDS, local_epochs=1, batch_size=8, lr=0.05))
    noise = DPGaussian(DPGaussian.Config(clip_norm=1.0, noise_multiplier=0.01))
    run(method, folder=folder, workers=workers, reply_loss=0.2, protections=[noise])


def killed(folder: Path, workers: int = 0, sabotage: Sabotage | None = None) -> bool:
    """Run in a process of its own; whether it was killed on the way (and did not end otherwise)."""
    process = multiprocessing.get_context("fork").Process(target=simulate, args=(folder, workers, sabotage))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# What goes wrong, installed in the process that will be killed -------------------------------


def before_file(number: int) -> None:
    """Die when the `number`th file has been written aside and not yet given its name."""
    rename, left = os.replace, [number]

    def replace_or_die(source: str, target: str) -> None:
        if left[0] == 0:
            die()
        left[0] -= 1
        rename(source, target)

    os.replace = replace_or_die  # type: ignore[assignment]


def after_file(number: int) -> None:
    """Die when the `number`th file has just got its name."""
    rename, left = os.replace, [number]

    def replace_then_die(source: str, target: str) -> None:
        rename(source, target)
        if left[0] == 0:
            die()
        left[0] -= 1

    os.replace = replace_then_die  # type: ignore[assignment]


def within_line(number: int, log: str) -> None:
    """Die when half of the `number`th line of a log is on the disk."""
    add, left = Log.add, [number]

    def half(self: Log, record: object) -> None:
        if self.path.name == log:
            if left[0] == 0:
                self._lines += b'{"round": '
                self.offset()  # writes
                die()
            left[0] -= 1
        add(self, record)  # type: ignore[arg-type]

    Log.add = half  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    simulate(folder)
    found = contents(folder)
    names = {"metrics.jsonl", "ledger.jsonl", "artifacts/manifest.jsonl", "checkpoint/state.safetensors"}
    assert names <= found.keys() and sum(n.endswith(".safetensors") for n in found) > 20
    return found


MOMENTS: list[Sabotage] = [
    *(partial(before_file, n) for n in (0, 1, 8, 17, 27)),
    *(partial(after_file, n) for n in (0, 5, 12, 22, 26)),
    *(partial(within_line, n, "metrics.jsonl") for n in (0, 3, 5)),
    *(partial(within_line, n, "manifest.jsonl") for n in (2, 31)),
    partial(within_line, 9, "ledger.jsonl"),
]


def name(moment: Sabotage) -> str:
    assert isinstance(moment, partial)
    return "-".join([moment.func.__name__, *map(str, moment.args)])


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", MOMENTS, ids=name)
def test_killed_and_continued_is_uninterrupted(
    moment: Sabotage, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    assert killed(tmp_path, sabotage=moment)
    assert contents(tmp_path) != uninterrupted
    simulate(tmp_path)
    assert contents(tmp_path) == uninterrupted


@pytest.mark.sample(2)
@pytest.mark.parametrize("moment", [MOMENTS[3], MOMENTS[7], MOMENTS[11]], ids=name)
@pytest.mark.parametrize("first, then", [(2, 2), (2, 0), (0, 2)])
def test_worker_processes_make_no_difference(
    first: int, then: int, moment: Sabotage, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    assert killed(tmp_path, first, moment)
    simulate(tmp_path, then)
    assert contents(tmp_path) == uninterrupted


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_again_and_again_from_outside(
    workers: int, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    rng, kills = random.Random(workers), 0
    fork = multiprocessing.get_context("fork")
    while kills < 6:
        process = fork.Process(target=simulate, args=(tmp_path, workers))
        process.start()
        time.sleep(rng.uniform(0.03, 0.25))
        process.kill()
        process.join()
        kills += 1
    simulate(tmp_path, workers)
    assert contents(tmp_path) == uninterrupted


def test_a_finished_run_stays_as_it_is(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    simulate(tmp_path)
    simulate(tmp_path, 2)
    assert contents(tmp_path) == uninterrupted


def test_the_model_returned_is_the_one_of_an_uninterrupted_run(tmp_path: Path) -> None:
    method = FedAvg(FedAvg.Config(rounds=4, local_epochs=1, lr=0.05))
    whole = run(method, folder=tmp_path / "whole").model
    with pytest.raises(Stopped):
        run(method, folder=tmp_path / "parts", stop_after=2)
    rest = run(method, folder=tmp_path / "parts")
    assert [h["round"] for h in rest.history] == [3]
    assert all(torch.equal(whole[k], rest.model[k]) for k in whole)


@pytest.mark.nightly
def test_every_file_is_a_safe_moment(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    number = 0
    while killed(tmp_path / str(number), sabotage=partial(before_file, number)):
        simulate(tmp_path / str(number))
        assert contents(tmp_path / str(number)) == uninterrupted, f"killed before file {number}"
        number += 1
    assert number == sum(n.endswith(".safetensors") for n in uninterrupted) + ROUNDS - 1
