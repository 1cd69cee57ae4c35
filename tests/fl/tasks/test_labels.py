"""What labels are of which task, which are refused, and which wrong ones only memory can tell."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.data.dataset import Arrays, Data, Dataset, read_data
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task, choose_task, load_task

NAMES = plugin.names("fedaudit.fl.tasks")
LABELS: dict[str, Any] = {
    "classify": np.array([0, 2, 1, 0]),
    "several": np.array([[0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]]),
    "regression": np.array([0.5, -1.0, 3.0, 2.0], np.float32),
    "survival": np.array([[1.0, 1], [2.0, 0], [0.5, 1], [3.0, 1]], np.float32),
    "segment": np.array([[[0, 1], [1, 0]]] * 4),
    "text": np.array([[3, 4, 0]] * 4),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_task_takes_labels_of_its_own_shape_and_says_what_it_gives(name: str) -> None:
    task: Task = load_task(name)()
    assert task.misfit(LABELS[name], 4) == "" and task.width(LABELS[name]) >= 1
    assert task.title and task.words and repr(task) == name


@pytest.mark.parametrize(
    ("name", "y", "says"),
    [
        ("classify", np.array([0.5, 1.0]), "expected whole numbers [2] from 0"),
        ("classify", np.array([0, -1]), "from -1"),
        ("classify", np.array([0, 1, 2]), "[3], expected whole numbers [2]"),
        ("several", np.array([[0, 2], [1, 1]]), "expected 0 or 1"),
        ("several", np.array([0, 1]), "expected 0 or 1"),
        ("regression", np.array([1, 2]), "expected floating-point numbers [2]"),
        ("regression", np.array([1.0, np.inf]), "expected finite numbers"),
        ("survival", np.array([[-1.0, 1], [1, 1]]), "negative or infinite times"),
        ("survival", np.array([[1.0, 2], [1, 1]]), "events other than 0 and 1"),
        ("survival", np.array([1.0, 2.0]), "times and events"),
        ("segment", np.array([0, 1]), "[2, places]"),
        ("segment", np.array([[0, -1], [1, 1]]), "from 0"),
    ],
)
def test_labels_of_another_shape_are_said_to_be(name: str, y: Any, says: str) -> None:
    assert says in load_task(name)().misfit(y, 2)


@pytest.mark.parametrize(
    ("y", "shape", "name"),
    [
        (LABELS["classify"], (1, 2, 2), "classify"),
        (LABELS["several"], (6,), "several"),
        (LABELS["regression"], (6,), "regression"),
        (LABELS["segment"], (1, 2, 2), "segment"),
        (np.zeros((4, 3, 2, 2), np.int64), (1, 3, 2, 2), "segment"),
        (np.array([[True, False]] * 4), (6,), "several"),
    ],
)
def test_what_is_not_declared_is_what_labels_allow(y: Any, shape: tuple[int, ...], name: str) -> None:
    assert repr(choose_task(y, shape)) == name


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (LABELS["survival"], "times and events, or two numbers"),
        (np.zeros((4, 3)) + 0.5, "no task's"),
        (np.zeros((4, 3, 3), np.int64), "no task's"),
        (np.array(["a"] * 4), "no task's"),
    ],
)
def test_labels_that_could_be_several_things_or_none_are_asked_about(y: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        choose_task(y, (1, 2, 2))


@pytest.mark.parametrize("name", ["classify", "several", "regression", "survival", "segment"])
def test_wrong_labels_are_labels_of_the_task_differ_from_the_right_and_follow_from_the_draw(name: str) -> None:
    task, y = load_task(name)(), LABELS[name]
    width, draws = max(2, task.width(y)), [17, 2**63 + 5, 0, 12345]
    wrong = task.mislabel(y, draws, width)
    assert task.misfit(wrong, 4) == "" and wrong.dtype == y.dtype
    assert all((w != r).any() for w, r in zip(wrong.reshape(4, -1), y.reshape(4, -1), strict=True))
    again = task.mislabel(y[1:2], draws[1:2], width)
    assert np.array_equal(again, wrong[1:2])


class Mine(Dataset):
    title = "Mine"

    def __init__(self, task: Task, y: Any, classes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._given = task, y, classes

    def load(self) -> Data:
        task, y, classes = self._given
        x = np.random.default_rng(0).random((len(y), 1, 2, 2), dtype=np.float32)
        arrays = Arrays(x=x, y=y)
        return Data(train=arrays, test=arrays, classes=classes, task=task)


def test_a_declaration_that_labels_contradict_is_an_error() -> None:
    with pytest.raises(UserError, match=r"train.y is int64 \[4\], expected floating-point numbers \[4\]"):
        read_data(Mine(load_task("regression")(), LABELS["classify"]))


def test_names_are_as_many_as_findings_and_none_of_numbers() -> None:
    several = LABELS["several"]
    assert read_data(Mine(load_task("several")(), several, ("a", "b", "c"))).width == 3
    with pytest.raises(UserError, match="there are 2 names of classes"):
        read_data(Mine(load_task("several")(), several, ("a", "b")))
    with pytest.raises(UserError, match="there are 2 names of classes"):
        read_data(Mine(load_task("regression")(), LABELS["regression"], ("a", "b")))


def test_the_scale_of_a_regression_is_that_of_the_test_part_which_no_client_holds() -> None:
    data = read_data(Mine(load_task("regression")(), LABELS["regression"]))
    assert data.task.config.spread == pytest.approx(float(LABELS["regression"].astype(float).std()), abs=1e-6)
    assert data.groups and len(data.groups) == len(data.task.config.cuts) + 1
    assert data.group(data.train).max() < len(data.groups)


@pytest.mark.parametrize("given", [None, {"x": [], "y": []}])
def test_a_data_set_that_loads_no_data_is_refused_with_what_load_returns(given: object) -> None:
    mine = Mine(load_task("regression")(), LABELS["regression"])
    object.__setattr__(mine, "load", lambda: given)
    with pytest.raises(UserError, match=r"Mine: load\(\) must return Data, got"):
        read_data(mine)


def test_labels_of_fewer_examples_are_refused_by_their_number() -> None:
    few, mine = LABELS["regression"], Mine(load_task("regression")(), LABELS["regression"])
    data = mine.load()
    short = replace(data, train=replace(data.train, y=few[:-1]))
    object.__setattr__(mine, "load", lambda: short)
    with pytest.raises(UserError, match=r"train.y is of 3 examples, and x of 4"):
        read_data(mine)
