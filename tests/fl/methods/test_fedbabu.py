"""FedBABU: the head never moves and never crosses the wire back; the body trains as without it."""

from pathlib import Path

import torch

from fl.artifact import Channel, Kind
from fl.methods.fedavg import FedAvg
from fl.methods.fedbabu import FedBABU
from tests.fl.worlds import close, run, same

SAME = {
    "rounds": 3,
    "local_epochs": 2,
    "batch_size": 8,
    "lr": 0.05,
    "momentum": 0.5,
    "weight_decay": 0.01,
}


def babu(**settings: object) -> FedBABU:
    return FedBABU(FedBABU.Config(**(SAME | settings)))  # type: ignore[arg-type]


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
    still = HeadStill(FedAvg.Config(**SAME))  # type: ignore[arg-type]
    assert close(run(babu()), run(still))


def test_it_is_not_fedavg() -> None:
    assert not close(run(babu()), run(FedAvg(FedAvg.Config(**SAME))), tolerance=1e-4)  # type: ignore[arg-type]


def test_no_head_goes_up(tmp_path: Path) -> None:
    up = [a for a in run(babu(), folder=tmp_path).artifacts
          if a.channel is Channel.UPLINK and a.kind is Kind.LOCAL_MODEL]  # fmt: skip
    assert up and all(not any(k.startswith("head") for k in a.payload) for a in up)


def test_orthogonal_rows_are_orthonormal_and_the_same_for_everybody() -> None:
    world = run(babu(head_init="orthogonal"))
    rows = world["head.weight"]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), atol=1e-5, rtol=0)
    assert same(world, run(babu(head_init="orthogonal")))
