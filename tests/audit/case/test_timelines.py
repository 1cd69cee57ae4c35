"""Figures of faults: every event is counted once, where and when it happened."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.timelines import timelines
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.clients.failures import FailureConfig
from fedaudit.fl.families.relay import ToleranceConfig, plan
from fedaudit.reports.charts import svg
from fedaudit.reports.result import Figure
from tests.fl.test_all_methods import light, perceptron


class Scripted:
    """Client 1 goes down in its first task; client 2 is always late."""

    def delay(self, client: int, request: int) -> float:
        return 9.0 if client == 2 else 0.1

    def silent_after(self, client: int, request: int) -> float | None:
        return 0.5 if client == 1 else None

    def fails(self, client: int, request: int) -> bool:
        return False

    def answers(self, client: int, step: int) -> bool:
        return True


def history() -> list[dict[str, Any]]:
    quiet = {"round": 0, "clock": 0.4, "events": []}
    relay = plan([0, 1, 2], {}, ToleranceConfig(), FailureConfig(delay=0.5), Scripted())
    return [quiet, {"round": 1, "clock": 3.0, "events": [e | {"group": 0} for e in relay.events]}]


def test_each_event_of_a_planned_relay_is_drawn_once() -> None:
    told = history()
    events = told[1]["events"]
    counts, points = timelines(told)
    assert {e["event"] for e in events} >= {"late", "silent", "rollback"}
    assert sum(sum(s.y) for s in counts.series) == len(events)
    assert {x for s in counts.series for x in s.x} == {3.0}  # the quiet round is not a fault
    drawn = sorted((x, y) for s in points.series for x, y in zip(s.x, s.y, strict=True))
    assert drawn == sorted((e["time"], e["client"]) for e in events)
    late = next(s for s in points.series if s.name == "late")
    assert set(late.y) == {2}
    assert next(s for s in points.series if s.name == "no heartbeat").y == [1]


def test_a_run_without_faults_or_relays_has_no_such_figure() -> None:
    assert timelines([]) == timelines([{"round": 0, "accuracy": 0.5}]) == timelines(history()[:1]) == []


def test_points_are_not_joined_by_lines() -> None:
    _, points = timelines(history())
    joined = Figure(**(points.model_dump() | {"kind": "line"}))
    assert svg(points) != svg(joined)
    assert len(svg(points)) < len(svg(joined))


def test_faults_of_clients_that_are_asked_all_at_once_are_drawn_at_the_rounds_ends() -> None:
    """A method without relays keeps no clock: its rounds have lengths, or no time at all."""
    late = {"event": "late", "client": 2, "time": 1.0}
    rounds = [{"round": 0, "round_length": 2.0}, {"round": 1, "round_length": 1.5, "events": [late]}]
    counts, points = timelines(rounds)
    assert [s.x for s in counts.series] == [[3.5]] and "mediator" not in counts.caption + points.caption
    assert timelines([{"round": 0, "events": [late]}])[0].series[0].x == [0.0]


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedasync", "split_learning", "gandalf"])
def test_every_kind_of_method_is_audited_where_clients_fail(method: str, tmp_path: Path) -> None:
    failures = {"transient": 0.5, "crash": 0.3, "delay": 0.3}
    federation = {"dataset": "digits", "limit": 60, "clients": 4, "model": perceptron(method)}
    settings = {
        "federation": federation | {"failures": failures},
        "method": {"name": method, **light(method, rounds=2)},
        "attacks": [],
        "replay": {"clients": 0, "updates": []},
        "noise_audit": False,
        "report": ["json"],
    }
    names = ["simulate", "attack", "account", "score"]
    config = validate(Config, settings, "test")
    execute(RunDir.create(tmp_path / "run"), config, names, lambda *_: None, skip_finished=True, workers=0)
    drawn = {figure.id for figure in read_result(tmp_path / "run").figures}
    assert method == "fedasync" or "faults-by-time" in drawn
