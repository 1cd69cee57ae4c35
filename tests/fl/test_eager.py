"""Optimisers without torch.compile's front end: equal steps, and nothing of it is loaded."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from fedaudit.fl.runtime.eager import eager

SETTINGS: dict[type[torch.optim.Optimizer], dict[str, Any]] = {
    torch.optim.SGD: {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "foreach": True},
    torch.optim.Adam: {"lr": 0.1},
    torch.optim.AdamW: {"lr": 0.1},
    torch.optim.RMSprop: {"lr": 0.1, "momentum": 0.9},
    torch.optim.LBFGS: {"lr": 0.5},
}


def trained(optimiser: type[torch.optim.Optimizer], settings: dict[str, Any]) -> list[torch.Tensor]:
    """Weights and the loss after five steps, through a closure where the optimiser needs one."""
    torch.manual_seed(0)
    weights = [torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
    x, y = torch.randn(8, 4), torch.randn(8, 3)
    made = optimiser(weights, **settings)
    rate = torch.optim.lr_scheduler.StepLR(made, 2)

    def loss() -> torch.Tensor:
        made.zero_grad()
        value = ((x @ weights[0] + weights[1] - y) ** 2).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    for _ in range(5):
        made.step(loss)  # type: ignore[arg-type]
        rate.step()
    return [w.detach() for w in weights]


@pytest.mark.parametrize("optimiser", SETTINGS, ids=lambda o: o.__name__)
def test_steps_are_equal_to_the_bit(optimiser: type[torch.optim.Optimizer]) -> None:
    settings = SETTINGS[optimiser]
    ours, theirs = trained(eager(optimiser), settings), trained(optimiser, settings)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    other = trained(eager(optimiser), settings | {"lr": settings["lr"] / 2})
    assert not torch.equal(ours[0], other[0])


@pytest.mark.nightly
def test_training_with_one_loads_nothing_of_the_compiler() -> None:
    code = (
        "import sys, torch; from fedaudit.fl.runtime.eager import eager\n"
        "for kind in (torch.optim.SGD, torch.optim.Adam):\n"
        "    w = torch.ones(3, requires_grad=True); made = eager(kind)([w], lr=0.1)\n"
        "    made.zero_grad(); w.sum().backward(); made.step()\n"
        "print(w.tolist() != [1.0] * 3, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
