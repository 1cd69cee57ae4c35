"""Counts below 0, or of nothing: a server that weighs by them would train against their sender, or divide by 0.

It rejects the message.
"""

import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.tree import finite

COUNTED = [k for k in Kind if k.counted]


@pytest.mark.parametrize("kind", COUNTED)
def test_a_count_below_nothing_is_no_count(kind: Kind) -> None:
    assert finite({kind.counted: torch.tensor([3.0, 0.0])}, kind.counted)
    assert not finite({kind.counted: torch.tensor([3, -1])}, kind.counted)
    assert not finite({kind.counted: torch.tensor(float("nan"))}, kind.counted)
    assert not finite({kind.counted: torch.tensor([0, 0])}, kind.counted)  # of nothing, there is nothing to tell
    assert finite({kind.counted: torch.zeros(0)}, kind.counted)


def test_numbers_that_count_nothing_may_be_below_it() -> None:
    assert finite({"weight": torch.tensor([-1.0])}, Kind.LOCAL_MODEL.counted) and finite(
        {"w": torch.tensor(-1.0)}
    )
