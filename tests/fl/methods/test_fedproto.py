"""FedProto: both regularisers by hand, training alone at lambda 0, the plain mean of prototypes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedproto import FedProto, mean_square, measure_distance
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, run, same


def make(**settings: Any) -> FedProto:
    return FedProto(FedProto.Config(**(SETTINGS | settings)))


def own_models(folder: Path) -> dict[str, Any]:
    memory = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return {k: m["own"] for k, m in memory.items()}


def test_both_regularisers_by_hand() -> None:
    """Feature (1, 1) and prototype (2, 0): 1 as a mean square, the root of 2 as a distance."""
    h, y = torch.tensor([[1.0, 1.0]]), torch.tensor([1])
    table, have = torch.tensor([[9.0, 9.0], [2.0, 0.0]]), torch.tensor([True, True])
    assert float(mean_square(h, y, table, have)) == 1.0
    assert float(measure_distance(h, y, table, have)) == pytest.approx(2**0.5)
    nobody = torch.tensor([True, False])
    assert float(mean_square(h, y, table, nobody)) == float(measure_distance(h, y, table, nobody)) == 0.0


def test_a_distance_is_of_the_mean_feature_and_has_no_gradient_at_zero() -> None:
    h = torch.tensor([[0.0, 3.0], [0.0, 5.0], [7.0, 7.0]], requires_grad=True)
    y, table, have = torch.tensor([0, 0, 1]), torch.tensor([[3.0, 0.0], [7.0, 7.0]]), torch.tensor([True, True])
    value = measure_distance(h, y, table, have)
    assert value.item() == 5.0  # (0, 4) from (3, 0), and 0 from itself
    [slope] = torch.autograd.grad(value, [h])
    torch.testing.assert_close(slope, torch.tensor([[-0.3, 0.4], [-0.3, 0.4], [0.0, 0.0]]))


@pytest.mark.parametrize("regulariser", ["mean_square", "distance"])
def test_at_lambda_zero_it_is_training_alone_and_above_it_is_not(regulariser: str, tmp_path: Path) -> None:
    run(FD(FD.Config(**SETTINGS, gamma=0.0)), folder=tmp_path / "alone", **WORLD)
    alone = own_models(tmp_path / "alone")
    for strength, is_same in ((0.0, True), (1.0, False)):
        run(make(strength=strength, regulariser=regulariser), folder=tmp_path / str(strength), **WORLD)
        ours = own_models(tmp_path / str(strength))
        assert ours.keys() == alone.keys() and all(same(ours[k], alone[k]) for k in ours) is is_same


def test_nothing_but_prototypes_crosses_and_the_server_sends_their_plain_mean(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, script=EVERYONE)
    assert {a.kind for a in world.artifacts} == {Kind.LOCAL_PROTOTYPES, Kind.GLOBAL_PROTOTYPES}
    sent = [a.payload for a in world.artifacts if a.kind == Kind.LOCAL_PROTOTYPES and a.round == 1]
    [mean] = [a.payload for a in world.artifacts if a.kind == Kind.GLOBAL_PROTOTYPES and a.round == 2]
    for c, row in zip(mean["classes"].tolist(), mean["features"], strict=True):
        rows = [p["features"][p["classes"].tolist().index(c)] for p in sent if c in p["classes"].tolist()]
        np.testing.assert_allclose(row, np.mean(rows, axis=0), atol=1e-6)


def test_a_regulariser_that_nobody_wrote_is_refused() -> None:
    with pytest.raises(UserError, match="regulariser"):
        configure(FedProto, {"regulariser": "cosine"}, "method")


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)
