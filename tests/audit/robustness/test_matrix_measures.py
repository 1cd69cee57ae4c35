"""Measures of a matrix: known answers, identity, and what two seeds that disagree come to."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks import stats
from fedaudit.attacks.poisoning.backdoors import Backdoor
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.robustness import measures
from fedaudit.audit.robustness.finished_runs import FinishedRun
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.tasks.classify import choose_classes


@dataclass(frozen=True)
class Answered:
    """Answers as a run gives them, without a run."""

    labels: np.ndarray
    answers: np.ndarray
    mixes: np.ndarray | None = None

    @property
    def right(self) -> np.ndarray:
        return np.asarray(self.answers == self.labels)


def of(hits: list[int], wrong: int = 0) -> FinishedRun:
    """100 images of 10 classes; `hits` of each are answered rightly."""
    labels = np.repeat(np.arange(10), 10)
    answers = np.concatenate([np.where(np.arange(10) < h, c, (c + 1) % 10) for c, h in enumerate(hits)])
    return Answered(labels, answers)  # type: ignore[return-value]


def test_newcombes_method_10_gives_the_published_interval() -> None:
    # airway hyper-responsiveness before and after transplantation, 21 children (Fagerland et al. 2014, table 2):
    # -0.286, (-0.507, -0.026)
    found = stats.paired_difference(1, 1, 7, 12)
    assert found.value == pytest.approx(-6 / 21)
    assert found.interval == pytest.approx((-0.507, -0.026), abs=5e-4)


def test_newcombes_interval_turns_round_with_the_order() -> None:
    low, high = stats.paired_difference(30, 9, 2, 9).interval
    assert stats.paired_difference(30, 2, 9, 9).interval == pytest.approx((-high, -low))


def test_clopper_pearson_gives_the_tabulated_interval() -> None:
    assert stats.clopper_pearson(3, 20) == pytest.approx((0.0321, 0.3789), abs=5e-5)


def test_nobody_malicious_is_a_drop_of_exactly_nothing() -> None:
    run = of([9] * 10)
    drop = measures.difference("accuracy_drop", [run], [run], 1)
    for e in (drop, measures.worst_class_difference("worst_class_drop", [run], [run], 1)):
        assert e.value == 0.0 and e.interval is not None and e.interval[0] <= 0 <= e.interval[1]


def test_a_lost_class_is_a_drop_of_a_tenth_and_the_whole_of_the_worst_class() -> None:
    before, after = of([9] * 10), of([0, *[9] * 9])
    drop = measures.difference("accuracy_drop", [before], [after], 1)
    assert drop.value == pytest.approx(0.09) and drop.interval is not None and drop.interval[0] > 0.03
    worst = measures.worst_class_difference("worst_class_drop", [before], [after], 1)
    assert worst.value == pytest.approx(0.9) and worst.interval is not None and worst.interval[0] > 0.4


def test_more_looks_widen_an_interval() -> None:
    before, after = of([9] * 10), of([5] * 10)
    one, many = (measures.difference("accuracy_drop", [before], [after], n).interval for n in (1, 20))
    assert one is not None and many is not None and many[0] < one[0] and many[1] > one[1]
    seeds = [of([9] * 10)] * 4, [of([8] * 10), of([7] * 10)] * 2  # over seeds as well
    for looks in (1, 20):
        drop = measures.difference("accuracy_drop", *seeds, looks).interval
        assert drop == pytest.approx(stats.t_interval([0.1, 0.2, 0.1, 0.2], 0.05 / looks)) and min(drop) > -1


def test_two_seeds_that_disagree_decide_nothing() -> None:
    # min_max on two-class clients under nnm + trimmed mean took 6.9 points with one seed and gave 3 with another
    before, after = [of([8] * 10), of([7] * 10)], [of([7] * 10), of([8] * 10)]
    found = measures.difference("accuracy_drop", before, after, 1)
    assert found.interval is not None and found.interval[0] < 0 < found.interval[1] and found.trials == 2
    assert stats.t_interval([0.069, -0.030]) == pytest.approx((-0.6095, 0.6485), abs=1e-4)


def test_one_repetition_has_no_interval_over_repetitions() -> None:
    with pytest.raises(ValueError, match="at least two, got 1"):
        stats.t_interval([0.1])


def test_who_holds_only_the_lost_class_loses_everything_where_the_mean_loses_a_tenth() -> None:
    before, after = of([9] * 10), of([0, *[9] * 9])
    every = np.full((10, 10), 0.1)
    spread = replace(after, mixes=every)  # type: ignore[type-var, call-arg]
    (found,) = measures.worst_client_drop([before], [spread], 1)
    assert found.value == pytest.approx(0.09) and found.interval is not None and found.interval[0] > 0.03
    alone = replace(after, mixes=np.vstack([every[:8], np.eye(10)[:1], np.eye(10)[:1]]))  # type: ignore[type-var, call-arg]
    (found,) = measures.worst_client_drop([before], [alone], 1)
    assert found.value == pytest.approx(0.9) and found.interval is not None and found.interval[0] > 0.6
    (nothing,) = measures.worst_client_drop([before], [replace(before, mixes=every)], 1)  # type: ignore[type-var, call-arg]
    assert nothing.value == 0 and nothing.interval is not None and nothing.interval[0] <= 0 <= nothing.interval[1]


def test_clients_of_whose_classes_none_is_tested_are_not_served_worst() -> None:
    before, after = of([9] * 10), of([0, *[9] * 9])
    mixes = np.hstack([np.eye(10)[:2], [[0.0], [0.0]]])
    untested = np.vstack([mixes, np.eye(11)[-1:]])  # an eleventh class, of which there is no test example
    pair = [measures.worst_client_drop([before], [replace(after, mixes=m)], 1) for m in (mixes, untested)]  # type: ignore[type-var, call-arg]
    assert pair[0] and pair[0] == pair[1]
    for nobody in (untested[2:], untested[:0]):  # the second: every client with data is malicious
        assert measures.worst_client_drop([before], [replace(after, mixes=nobody)], 1) == []  # type: ignore[type-var, call-arg]


class Counted(FinishedRun):
    """Counts how often images are answered, every one as class 0 but the last."""

    labels = np.array([0, 1, 2, 3])
    times = 0
    _images = np.zeros((4, 1, 8, 8), dtype=np.float32)

    def _predict_labels(self, images: np.ndarray) -> np.ndarray:
        Counted.times += 1
        return np.array([0, 0, 0, 1])


def test_triggered_images_are_answered_once_however_often_they_are_counted() -> None:
    run, backdoor = Counted(None, None), Backdoor(Backdoor.Config(clients=1))  # type: ignore[arg-type]
    found = measures.asr(backdoor, [run], [run], 1)
    assert found.value == measures.success(backdoor, run) == pytest.approx(2 / 3)
    assert Counted.times == 2  # the trigger, and the one that nobody trained on


def test_durability_counts_rounds_from_leaving_until_half_is_left() -> None:
    worked = {0: 0.2, 1: 0.9, 2: 0.8, 3: 0.5, 4: 0.45, 5: 0.7}
    assert measures.find_half_life(worked, 2) == (3, False)  # rounds 2, 3 and 4
    assert measures.find_half_life({1: 0.9, 2: 0.8, 3: 0.6}, 2) == (2, True)  # the run ended before
    assert measures.find_half_life({1: 0.0, 2: 0.0}, 2) is None and measures.find_half_life({1: 0.9}, 2) is None


SMALL: dict[str, Any] = {
    "dataset": "digits",
    "limit": 60,
    "clients": 3,
    "model": "mlp",
    "holdout": {"auxiliary": 0, "reference": 0},
}


@pytest.mark.parametrize("record", [[], [9]])
def test_a_run_that_kept_no_model_is_not_said_to_release_none(tmp_path: Path, record: list[int]) -> None:
    config = Config.model_validate(
        {
            "federation": SMALL,
            "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1},
            "adversary": {"name": "backdoor", "clients": 1},
            "record": record,
        }
    )
    (tmp_path / "run").mkdir()
    execute(RunDir(tmp_path / "run"), config, ["simulate"], lambda *_: None, skip_finished=False)
    with pytest.raises(UserError, match="kept no shared model, which FedAvg does release") as error:
        FinishedRun(config, tmp_path / "run").accuracy  # noqa: B018
    assert "record: last" in str(error.value.hint)


def test_a_model_that_diverged_answers_nothing_and_is_measured_like_any_other(tmp_path: Path) -> None:
    """A trigger's target is class 0, which is what the largest of numbers that are none would be."""
    backdoor = Backdoor(Backdoor.Config(clients=1))
    runs = []
    for factor in (1.0, 1e300):
        config = Config.model_validate(
            {
                "federation": SMALL,
                "method": {"name": "fednova", "rounds": 2, "local_epochs": 1},
                "adversary": {"name": "false_claims", "clients": 1, "factor": factor},
                "record": "last",
            }
        )
        folder = tmp_path / str(factor)
        folder.mkdir()
        execute(RunDir(folder), config, ["simulate"], lambda *_: None, skip_finished=False)
        runs.append(FinishedRun(config, folder))
    sound, diverged = runs
    assert not sound.is_diverged and sound.answers.min() >= 0
    assert diverged.is_diverged and diverged.accuracy == 0 and measures.success(backdoor, diverged) == 0
    drop = measures.difference("accuracy_drop", [sound], [diverged], 1)
    assert drop.value == pytest.approx(sound.accuracy)
    assert choose_classes(torch.tensor([[0.1, 0.7], [torch.nan, 0.7], [-torch.inf, 3.0]])).tolist() == [1, -1, 1]
