"""Where forged changes stand among honest ones: known ranks, and what is left out."""

import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.stealth import Stealth

HONEST = {0: (1.0, 0.0), 1: (2.0, 0.5), 2: (3.0, -0.5), 3: (4.0, 0.1)}
START = {Kind.GLOBAL_MODEL: {"w": torch.tensor([10.0, 10.0])}}


def ranks(forged: tuple[float, float]) -> dict[str, float]:
    made = Stealth(("w",))
    for k, change in (HONEST | {9: forged}).items():
        model = {"w": START[Kind.GLOBAL_MODEL]["w"] + torch.tensor(change), "seen": torch.tensor(3)}
        made.add(k, {Kind.LOCAL_MODEL: model}, START)
    return dict(made.ranks({9}))


def test_a_large_change_the_other_way_stands_at_both_ends() -> None:
    assert ranks((-50.0, 0.0)) == {"norm_rank": 1.0, "cosine_rank": 0.0}


def test_a_copy_of_an_honest_change_stands_where_it_does() -> None:
    assert ranks((2.0, 0.5))["norm_rank"] == pytest.approx(1.5 / 4)  # one is shorter, one is equal


def test_a_change_that_is_sent_as_one_counts_alike() -> None:
    made = Stealth(("w",))
    for k, change in (HONEST | {9: (0.0, 0.1)}).items():
        made.add(k, {Kind.MODEL_DELTA: {"w": torch.tensor(change)}}, {})
    assert made.ranks({9})["norm_rank"] == 0.0


def test_without_a_model_or_two_honest_changes_nothing_is_said() -> None:
    made = Stealth(("w",))
    made.add(0, {Kind.LOCAL_PROTOTYPES: {"w": torch.zeros(2)}}, START)
    made.add(1, {Kind.MODEL_DELTA: {"w": torch.ones(2)}}, {})
    assert made.ranks({1}) == {} and made.ranks({0}) == {}
