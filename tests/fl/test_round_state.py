"""Round state goes in and comes out: a method object is the same before and after its rounds.

What a method keeps on `self` would be missing from checkpoints, and would pass from one federation to the next.
tests/fl/test_all_methods.py holds it for every method; here are the converse, two processes and a killed run.
"""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.method import Method
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime import plugin
from tests.fl.test_all_methods import NAMES, method
from tests.fl.worlds import Stopped, Watched, World, data, parts, run, same


def changed(cls: type[Method], settings: Any, workers: int = 0) -> bool:
    found = Watched(cls, settings)
    run(found.method, workers=workers, reply_loss=0.2, d=data(n=100), index=parts(data(n=80)))
    return found.changed()


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_work_done_ahead_for_two_processes_is_not_kept_in_the_method(name: str) -> None:
    assert not changed(plugin.load("fedaudit.fl.methods", name, Method), method(name).config, workers=2)


class Remembers(FedAvg):
    """A method that does what no method may: the number of rounds goes on by itself."""

    def broadcast(self, state: Any) -> Any:
        self.rounds_seen = getattr(self, "rounds_seen", 0) + 1
        return super().broadcast(state)


class Scales(FedAvg):
    """Another, in a worker: what one client was leaves a mark on the next."""

    def train(self, client: Client) -> Reply:
        self.last = client.index
        return super().train(client)


def test_a_method_that_keeps_something_is_found_out() -> None:
    assert changed(Remembers, FedAvg.Config(rounds=2)) and changed(Scales, FedAvg.Config(rounds=2))
    assert not changed(FedAvg, FedAvg.Config(rounds=2))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_one_object_stopped_lent_to_another_federation_and_continued_gives_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    def world(found: Method, folder: Path, stop: int | None = None, seed: int = 5) -> World:
        return run(
            found,  # type: ignore[arg-type]
            folder=folder,
            stop_after=stop,
            seed=seed,
            reply_loss=0.2,
            d=data(n=100),
            index=parts(data(n=80)),
        )

    one = method(name)
    with pytest.raises(Stopped):
        world(one, tmp_path / "stopped", stop=1)
    world(one, tmp_path / "other", seed=6)
    continued, fresh = world(one, tmp_path / "stopped"), world(method(name), tmp_path / "fresh")
    assert same(continued, fresh)
    for file in ("metrics.jsonl", "ledger.jsonl", "artifacts/manifest.jsonl"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "fresh" / file).read_bytes()
