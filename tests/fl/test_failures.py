"""How clients fail, in every method: what a turn comes to, by hand; asking again never costs an answer."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fedaudit.fl.clients.failures import FailureConfig, RandomFaults, Turn, turn
from fedaudit.fl.method import Method
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from tests.fl.test_all_methods import NAMES, light
from tests.fl.worlds import EVERYONE, World, data, parts, run

PACED = ("fedasync", "fedbuff")
SHORT = {"cycles": 2, "least_cycles": 1, "local": 1, "width": 4, "latent": 6, "batch_size": 8}
FAILING = FailureConfig(delay=0.3, transient=0.3, crash=0.1)


@dataclass
class Script:
    """What happens in the first requests to a client, and nothing after them."""

    delays: list[float] = field(default_factory=list)
    silent: list[float | None] = field(default_factory=list)
    failing: list[bool] = field(default_factory=list)

    def delay(self, client: int, request: int) -> float:
        return self.delays[request] if request < len(self.delays) else 0.0

    def silent_after(self, client: int, request: int) -> float | None:
        return self.silent[request] if request < len(self.silent) else None

    def fails(self, client: int, request: int) -> bool:
        return request < len(self.failing) and self.failing[request]

    def answers(self, client: int, step: int) -> bool:
        return True


def came_to(script: Script, **settings: Any) -> tuple[bool, float, list[str]]:
    found = turn(3, FailureConfig(timeout=3.0, **settings), script)
    assert found.requests <= 1 + settings.get("again", 0)
    return found.heard, found.time, [e["event"] for e in found.events]


def test_who_answers_in_time_is_heard_after_its_delay() -> None:
    assert came_to(Script(delays=[3.0])) == (True, 3.0, [])


def test_who_is_late_costs_the_timeout_and_may_be_asked_again() -> None:
    assert came_to(Script(delays=[3.1])) == (False, 3.0, ["late"])
    assert came_to(Script(delays=[3.1, 0.5]), again=1) == (True, 3.5, ["late"])


def test_a_heartbeat_tells_of_a_failure_before_the_timeout_does() -> None:
    assert came_to(Script(failing=[True]), again=1) == (True, 1.0, ["failed"])  # a third of the timeout
    assert came_to(Script(failing=[True]), again=1, heartbeat=0.5) == (True, 0.5, ["failed"])
    assert came_to(Script(failing=[True]), again=1, heartbeats=False) == (True, 3.0, ["late"])


def test_who_is_down_stays_down_and_is_asked_again_only_where_nobody_noticed() -> None:
    assert came_to(Script(delays=[2.0], silent=[0.25]), again=2) == (False, 1.5, ["silent"])
    assert came_to(Script(silent=[0.25]), again=2, heartbeats=False) == (False, 9.0, ["late"] * 3)


def test_failures_come_as_often_as_they_should() -> None:
    config = FailureConfig(delay=0.2, transient=0.3, crash=0.1)
    turns = [turn(0, config, RandomFaults(config, Streams(1), t)) for t in range(3000)]
    assert abs(sum(t.heard for t in turns) / 3000 - 0.8 * 0.7 * 0.9) < 0.03
    assert turns[:50] == [turn(0, config, RandomFaults(config, Streams(1), t)) for t in range(50)]


@pytest.mark.parametrize("heartbeats", [True, False])
@pytest.mark.parametrize("kind", ["delay", "transient", "crash"])
def test_asking_again_never_costs_an_answer(kind: str, heartbeats: bool) -> None:
    more = 0
    for t in range(200):
        heard = []
        for again in (0, 1, 3):
            config = FailureConfig(**{kind: 0.4}, heartbeats=heartbeats, again=again)  # type: ignore[arg-type]
            heard.append(turn(0, config, RandomFaults(config, Streams(2), t)).heard)
        assert heard == sorted(heard)
        more += heard[2] - heard[0]
    assert kind == "crash" or more > 30


def test_nothing_fails_by_default() -> None:
    assert not FailureConfig().any
    assert turn(0, FailureConfig(), RandomFaults(FailureConfig(), Streams(1), 0)) == Turn()


def over(name: str, failures: FailureConfig, tolerance: bool = True) -> World:
    settings = light(name, rounds=2, gan=SHORT, labeler_rounds=1, faults={"tolerance": tolerance})
    made: Any = configure(plugin.load("fedaudit.fl.methods", name, Method), settings, "method")
    d, index = data(n=100), parts(data(n=80), skew=False)  # the server owns what is left
    return run(made, script=EVERYONE, failures=failures, empty_round="skip", d=d, index=index)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_meets_failures_and_tolerance_never_ends_with_fewer(name: str) -> None:
    """Round by round, of examples that the model was made of. An asynchronous step waits for its answers, whoever
    gives them: there it loses no more of them on the way."""
    plain = over(name, FAILING, tolerance=False)
    kept = over(name, replace(FAILING, again=3))
    used = [[h["samples_used"] for h in w.history] for w in (plain, kept)]
    if name in PACED:
        lost = [sum(h["lost"] for h in w.history) for w in (plain, kept)]
        assert lost[0] > lost[1]
        return
    assert all(a <= b for a, b in zip(*used, strict=True))
    # whoever is asked is heard, rejected or lost, and once, however often it was asked
    for h in (*plain.history, *kept.history):
        assert h["delivered"] + h["lost"] + h["rejected"] <= h["selected"]
    if name != "datacenter":  # where the examples are at the server already
        assert any(h.get("events") for h in plain.history)
        assert sum(used[0]) < sum(used[1])
