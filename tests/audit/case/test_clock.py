"""Figures of the clock, by hand: cumulative time, mean turns of a class of devices, who did what when."""

import numpy as np
import pytest

from fedaudit.attacks.evidence import Series
from fedaudit.audit.case.clock import by_device, by_time, compare_times, last_round
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.clients.time_model import MEGABYTE, TimeModel, Workload
from fedaudit.fl.kinds import Kind
from fedaudit.reports.charts import svg
from tests.reports.sample import result

# Two fast devices and one slow one; a megabyte takes a fast one half a unit of time, the slow one two
TIMES = TimeModel(
    capability=np.array([2.0, 0.5, 2.0]), workload=Workload(bandwidth=1.0, compute=1.0, profile=(1.0,))
)
HISTORY = [
    {"round": 0, "round_length": 4.0, "heard": [0, 1], "accuracy": 0.5},
    {"round": 1, "round_length": 2.0, "heard": [0, 2]},
    {"round": 2, "round_length": 8.0, "heard": [0, 1], "accuracy": 0.75},
]


def seen(round: int, client: int, time: float, down: int, up: int) -> Artifact:
    payload = {"time": np.array(time), "bytes_down": np.array(down), "bytes_up": np.array(up)}
    return Artifact(
        id=f"r{round:05}/client-{client}/task_time",
        kind=Kind.TASK_TIME,
        round=round,
        channel=Channel.OBSERVED,
        sender=Party.client(client),
        seen_by=(str(SERVER),),
        payload=payload,
    )


def test_accuracy_stands_at_the_end_of_its_round() -> None:
    [figure] = by_time(HISTORY)
    assert figure.series == [Series(name="accuracy", x=[4.0, 14.0], y=[50.0, 75.0])]


def test_a_clock_of_the_methods_own_is_taken_as_it_is() -> None:
    [figure] = by_time([{"clock": 3.0, "accuracy": 0.1}, {"clock": 5.0, "accuracy": 0.2}])
    assert figure.series[0].x == [3.0, 5.0]


def test_without_a_clock_there_is_no_figure() -> None:
    plain = [{"round": 0, "accuracy": 0.1}, {"round": 1, "accuracy": 0.2}]
    assert by_time(plain) == by_device(plain, None) == last_round([], plain, TIMES) == []


def test_turns_are_a_clients_mean_by_class() -> None:
    """The slow one was heard twice; of the fast, one three times and one once."""
    [figure] = by_device(HISTORY, TIMES)
    assert figure.series == [Series(name="rounds heard", x=[0.5, 2.0], y=[2.0, 2.0])]


def test_the_last_round_in_parts_that_add_up_to_its_length() -> None:
    """The slow client: 2 units down, 2 training, 1 up, the fast one waits from 3 to 5."""
    history = [{"round": 2, "round_length": 5.0}]
    answers = [
        seen(1, 0, 9.0, MEGABYTE, MEGABYTE),
        seen(2, 0, 3.0, MEGABYTE, MEGABYTE // 2),
        seen(2, 1, 5.0, MEGABYTE, MEGABYTE // 2),
    ]
    [figure] = last_round(answers, history, TIMES)
    spans = {s.name: list(zip(s.low or (), s.high or (), strict=True)) for s in figure.series}
    assert spans["downloads"] == [(0.0, 2.0), (0.0, pytest.approx(0.5))]  # slowest first
    assert spans["trains"] == [(2.0, 4.0), (0.5, 2.75)]
    assert spans["sends"] == [(4.0, 5.0), (2.75, 3.0)]
    assert spans["waits"] == [(5.0, 5.0), (3.0, 5.0)]
    assert svg(figure).count(b'id="value-') == 8


def test_alternatives_stand_in_one_figure_a_series_each() -> None:
    one, other = (result().model_copy(update={"figures": by_time(HISTORY)}) for _ in range(2))
    [figure] = compare_times({"as audited": one, "freezefl": other})
    assert [s.name for s in figure.series] == ["as audited", "freezefl"]
    assert compare_times({"as audited": one, "plain": result().model_copy(update={"figures": []})}) == []
