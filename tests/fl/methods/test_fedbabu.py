"""FedBABU: the head never moves and never crosses the wire back; the body trains as without it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedbabu import FedBABU
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, close, run, same


def babu(**settings: Any) -> FedBABU:
    return FedBABU(FedBABU.Config(**(SETTINGS | settings)))


def fedavg() -> FedAvg:
    return FedAvg(FedAvg.Config(**SETTINGS))


class HeadStill(FedAvg):
    """FedAvg whose head gets neither gradient nor decay."""

    def correct(self, grads, params, start, const):  # type: ignore[no-untyped-def]
        return {k: -0.01 * params[k] if k in self.head else g for k, g in grads.items()}


def test_the_head_is_the_initial_one_after_any_number_of_rounds() -> None:
    world = run(babu())
    assert torch.equal(world["head.weight"], world.initial["head.weight"])
    assert torch.equal(world["head.bias"], world.initial["head.bias"])
    assert not torch.equal(world["fc.weight"], world.initial["fc.weight"])


def test_the_body_trains_as_if_the_heads_gradient_were_zero() -> None:
    assert close(run(babu(), **WORLD), run(HeadStill(FedAvg.Config(**SETTINGS)), **WORLD))


def test_it_is_not_fedavg() -> None:
    assert not close(run(babu()), run(fedavg()), tolerance=1e-4)


def test_no_head_goes_up(tmp_path: Path) -> None:
    world = run(babu(), folder=tmp_path)
    up = [a for a in world.artifacts if a.channel is Channel.UPLINK and a.kind is Kind.LOCAL_MODEL]
    assert up and all(not any(k.startswith("head") for k in a.payload) for a in up)


def test_orthogonal_rows_are_orthonormal_and_the_same_for_everybody() -> None:
    world = run(babu(head_init="orthogonal"))
    rows = world["head.weight"]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), atol=1e-5, rtol=0)
    assert same(world, run(babu(head_init="orthogonal")))


def test_the_released_model_has_its_head(tmp_path: Path) -> None:
    world = run(babu(), folder=tmp_path)
    (released,) = [a for a in world.artifacts if a.channel is Channel.RELEASE]
    assert released.payload.keys() == world.initial.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("head_init", ["default", "orthogonal"])
def test_a_run_that_was_stopped_continues_to_the_same_bits(head_init: str, tmp_path: Path) -> None:
    assert continues(lambda: babu(head_init=head_init), tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(babu(), script=EVERYONE), run(babu(), script=EVERYONE, workers=2))
