"""FedAwS is FedAvg without steps, spreads rows by hand, and hides other classes' rows where told to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedaws import FedAwS, spread, spreadout
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct
from tests.fl.worlds import EVERYONE, data, parts, run, same

HEAD = "head.weight"


def fedaws(**settings: Any) -> FedAwS:
    return FedAwS(FedAwS.Config(**(SETTINGS | settings)))


def one_class_each() -> dict[str, Any]:
    d = data()
    index = [np.flatnonzero(d.train.y == c) for c in range(4)]
    return {"d": d, "index": index, "script": [([0, 1, 2, 3], [0, 1, 2, 3])]}


def cosines(rows: torch.Tensor) -> torch.Tensor:
    unit = torch.nn.functional.normalize(rows)
    return (unit @ unit.T)[~torch.eye(len(rows), dtype=torch.bool)]


def test_without_steps_it_is_fedavg_to_the_last_bit() -> None:
    assert same(run(fedaws(steps=0), **WORLD), run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD))


def test_with_steps_it_is_not_fedavg_and_only_the_proxies_move_in_the_first_round() -> None:
    one = SETTINGS | {"rounds": 1}
    aws, avg = run(fedaws(rounds=1, margin=0.8)), run(FedAvg(FedAvg.Config(**one)))
    assert [k for k in avg.model if not torch.equal(aws[k], avg[k])] == [HEAD]


def test_the_regulariser_by_hand() -> None:
    """Rows at 60 and 180 degrees of the first: cosines 1/2, -1, -1/2, so d = 1/4, 1, 3/4; margin 0.8."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 3**0.5], [-2.0, 0.0]])
    expected = 2 * ((0.8 - 0.25) ** 2 + 0 + (0.8 - 0.75) ** 2) / 9
    assert float(spreadout(rows, 0.8)) == pytest.approx(expected, rel=1e-5)


def test_orthogonal_rows_do_not_move_at_a_margin_of_one_half() -> None:
    rows = 3 * torch.eye(4, 6)
    assert torch.equal(spread(rows, 0.5, 50, 0.01), rows)
    assert not torch.equal(spread(rows, 0.6, 50, 0.01), rows)


def test_spreading_lowers_the_regulariser_and_its_first_step_is_the_gradient() -> None:
    rng = torch.Generator().manual_seed(1)
    rows = torch.randn(5, 8, generator=rng) + 1
    assert float(spreadout(spread(rows, 0.5, 50, 0.01), 0.5)) < float(spreadout(rows, 0.5))
    w = rows.double().requires_grad_()
    (grad,) = torch.autograd.grad(spreadout(w, 0.5), [w])
    torch.testing.assert_close(spread(rows, 0.5, 1, 0.1).double(), w.detach() - 0.1 * grad, rtol=0, atol=1e-6)


def test_the_positive_loss_by_hand() -> None:
    """Cosines 0.6 and 1 with the own rows: (0.3^2 + 0) / 2."""

    class Rows:
        def head_weight(self) -> torch.Tensor:
            return torch.tensor([[3.0, 4.0], [0.0, 2.0]])

        features = staticmethod(direct().features)

    x, y = torch.tensor([[1.0, 0.0], [0.0, 5.0]]), torch.tensor([0, 1])
    loss = fedaws(positive_only=True).loss(Rows(), x, y, {})  # type: ignore[arg-type]
    assert float(loss) == pytest.approx(0.045, rel=1e-5)


def test_clients_see_the_rows_of_their_own_classes_only(tmp_path: Path) -> None:
    d, index = data(), parts(data())
    world = run(fedaws(positive_only=True), folder=tmp_path, d=d, index=index, script=EVERYONE)
    sent = [a for a in world.artifacts if a.channel != Channel.RELEASE]
    assert not [a for a in sent if a.kind in (Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL) and HEAD in a.payload]
    rows = [a for a in sent if a.kind == Kind.PROXIES]
    assert {a.channel for a in rows} == {Channel.UPLINK, Channel.DOWNLINK}
    for a in rows:
        k = int((str(a.sender) if a.channel == Channel.UPLINK else a.seen_by[0]).split("/")[1])
        assert a.payload["classes"].tolist() == np.unique(d.train.y[index[k]]).tolist()
        assert a.payload["rows"].shape == (len(a.payload["classes"]), 8)


def test_clients_start_from_the_rows_the_server_spread(tmp_path: Path) -> None:
    """With a rate of zero a client returns the rows it got; those of round 0 are the initial ones."""
    world = run(
        fedaws(positive_only=True, lr=0.0, margin=0.9, spread_lr=0.1), folder=tmp_path, script=[([4], [4])]
    )
    rows = {
        (a.round, a.channel): torch.from_numpy(a.payload["rows"])
        for a in world.artifacts
        if a.kind == Kind.PROXIES
    }
    assert (0, Channel.DOWNLINK) not in rows
    for t in (1, 2):
        assert torch.equal(rows[t, Channel.DOWNLINK], rows[t, Channel.UPLINK])
        assert not torch.allclose(rows[t, Channel.UPLINK], rows[t - 1, Channel.UPLINK])


@pytest.mark.nightly
def test_spreading_keeps_one_class_clients_from_collapsing() -> None:
    """With one class a client and no spreading all rows may drift together; the margin holds them."""
    world = one_class_each()
    loose = run(fedaws(positive_only=True, steps=0, rounds=8), **world)
    held = run(fedaws(positive_only=True, margin=0.8, spread_lr=0.1, rounds=8), **world)
    assert cosines(held[HEAD]).max() < cosines(loose[HEAD]).max()
    assert held.history[-1]["accuracy"] > 0.5
    torch.testing.assert_close(held[HEAD].norm(dim=1), torch.ones(4))


def test_orthogonal_heads_start_orthonormal() -> None:
    world = run(fedaws(orthogonal_head=True, lr=0.0, steps=0, weight_decay=0.0))
    torch.testing.assert_close(world[HEAD] @ world[HEAD].T, torch.eye(4), rtol=0, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("positive_only", [False, True])
def test_a_run_that_was_stopped_continues_to_the_same_bits(positive_only: bool, tmp_path: Path) -> None:
    assert continues(lambda: fedaws(positive_only=positive_only), tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    a, b = (run(fedaws(positive_only=True), script=EVERYONE, workers=w) for w in (0, 2))
    assert same(a, b)


@pytest.mark.parametrize(("key", "value"), [("margin", 1.5), ("steps", -1)])
def test_settings_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{key} must be"):
        fedaws(**{key: value})
