"""Every task against numbers from elsewhere: hand arithmetic, and gradients of one step."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.fl.runtime.task import Task
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.tasks.regression import Regression
from fedaudit.fl.tasks.segment import Segment, measure_dice
from fedaudit.fl.tasks.several import Several
from fedaudit.fl.tasks.survival import Survival
from fedaudit.fl.tasks.text import Text


def test_terms_of_coxs_likelihood_are_those_of_their_risk_sets() -> None:
    y = torch.tensor([[3.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    terms = Survival().losses(torch.tensor([[0.0], [1.0], [2.0]]), y)
    assert terms.tolist() == pytest.approx([0.0, 0.0, 0.407606], abs=1e-6)
    assert terms[2].item() == pytest.approx(math.log(1 + math.e + math.e**2) - 2, abs=1e-6)


def test_examples_to_which_it_happened_at_one_time_are_in_each_others_risk_set() -> None:
    y = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    terms = Survival().losses(torch.tensor([[0.0], [1.0]]), y)
    assert terms.tolist() == pytest.approx([math.log(1 + math.e), math.log(1 + math.e) - 1], abs=1e-6)


def test_dice_of_one_place_right_and_one_too_many_is_two_thirds() -> None:
    claimed, true = torch.tensor([[0.9, 0.2, 0.6]]) > 0.5, torch.tensor([[1, 0, 0]]) > 0
    assert measure_dice(claimed & true, claimed, true).tolist() == pytest.approx([2 / 3], abs=1e-6)


def test_an_example_with_nothing_to_find_and_nothing_found_is_right() -> None:
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert measure_dice(nothing, nothing, nothing).tolist() == [1.0]


def test_dice_is_of_what_is_not_the_background() -> None:
    out = torch.tensor([[[0.1, 0.8, 0.4], [0.9, 0.2, 0.6]]])  # [1, 2 classes, 3 places]
    assert Segment().scores(out, torch.tensor([[1, 0, 0]])).tolist() == pytest.approx([2 / 3], abs=1e-6)


def test_a_regressions_score_falls_to_nothing_at_the_spread_of_public_labels() -> None:
    task = Regression(Regression.Config(cuts=(0.0,), spread=2.0))
    out, y = torch.tensor([[1.0], [2.0], [5.0], [torch.nan]]), torch.tensor([1.0, 1.0, 1.0, 1.0])
    assert task.scores(out, y).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_scores_of_survival_are_shares_of_comparable_pairs_in_order() -> None:
    y = torch.tensor([[1.0, 1.0], [2.0, 1.0], [3.0, 0.0], [0.5, 0.0]])
    scores = Survival().scores(torch.tensor([[2.0], [0.0], [1.0], [9.0]]), y)
    assert scores.tolist() == [1.0, 0.5, 0.5, 0.5]  # pairs 01 and 02 right, 12 wrong; the last has none


def test_a_shift_of_all_risks_changes_nothing_so_the_last_bias_of_survival_tells_nothing() -> None:
    torch.manual_seed(0)
    net, y = nn.Linear(3, 1), torch.tensor([[1.0, 1.0], [2.0, 1.0], [3.0, 0.0]])
    loss = Survival().loss(net(torch.randn(3, 3)), y)
    assert torch.autograd.grad(loss, net.bias)[0].item() == pytest.approx(0, abs=1e-6)


def test_only_survival_is_no_sum_over_examples() -> None:
    tasks: list[Task] = [Classify(), Several(), Regression(), Survival(), Segment(), Text()]
    assert [t for t in tasks if not t.separable] == [tasks[3]]


def test_a_batchs_loss_of_classes_is_the_kernel_that_trained_before_there_were_tasks() -> None:
    torch.manual_seed(1)
    out, y = torch.randn(37, 10), torch.randint(10, (37,))
    assert Classify().loss(out, y).item() == torch.nn.functional.cross_entropy(out, y).item()
    summed = torch.nn.functional.cross_entropy(out, y, reduction="sum")
    assert Classify().loss(out, y, "sum").item() == summed.item()


def test_public_labels_cut_a_regression_into_deciles_and_give_its_spread() -> None:
    task = Regression().learn_scale(np.arange(101, dtype=np.float32))
    assert task.config.cuts == pytest.approx([10, 20, 30, 40, 50, 60, 70, 80, 90], abs=1e-6)
    assert task.config.spread == pytest.approx(29.154759, abs=1e-6)
    groups = task.groups(np.array([-5.0, 10.0, 55.0, 1000.0], np.float32))
    assert groups is not None and groups.tolist() == [0, 1, 5, 9]
    assert task.name_groups(())[0] == "below 10" and task.name_groups(())[-1] == "from 90"


def test_without_public_labels_a_regression_has_no_groups() -> None:
    assert Regression().groups(np.array([1.0])) is None and Regression().name_groups(()) == ()
