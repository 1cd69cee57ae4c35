"""FD and FedAvg with distillation: tables by hand, FedAvg at gamma 0, and no model on the wire in FD."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.families.distillation import distillation_loss, mean_of_others, pool_tables
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedavg_fd import FedAvgFD
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, logit_gradient
from tests.fl.worlds import EVERYONE, data, parts, run, same


def make(cls: type[Any], **settings: Any) -> Any:
    return cls(cls.Config(**(SETTINGS | settings)))


def own_models(folder: Path) -> dict[str, Any]:
    memory = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return {k: m["own"] for k, m in memory.items()}


def table(*rows: list[float] | None) -> dict[str, torch.Tensor]:
    width = len(rows)
    return {
        "table": torch.tensor([r or [0.0] * width for r in rows]),
        "present": torch.tensor([r is not None for r in rows]),
    }


def test_gamma_zero_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(make(FedAvgFD, gamma=0.0), **WORLD), run(fedavg, **WORLD))


def test_gamma_above_zero_is_not_fedavg_from_the_second_round_on() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert not same(run(make(FedAvgFD), **WORLD), run(fedavg, **WORLD))
    one = FedAvg(FedAvg.Config(**(SETTINGS | {"rounds": 1})))
    assert same(run(make(FedAvgFD, rounds=1), **WORLD), run(one, **WORLD))


def test_a_client_receives_the_mean_of_the_others() -> None:
    a = table([0.8, 0.2], None)
    b = table([0.6, 0.4], [0.1, 0.9])
    c = table([0.2, 0.8], None)
    total = pool_tables(2, [a, b, c])
    assert torch.allclose(mean_of_others(total, a)["table"], torch.tensor([[0.4, 0.6], [0.1, 0.9]]))
    without_b = mean_of_others(total, b)
    assert without_b["present"].tolist() == [True, False]  # nobody else holds class 1
    assert without_b["table"][1].tolist() == [0.0, 0.0]
    stranger = mean_of_others(total, None)
    assert torch.allclose(stranger["table"][0], torch.tensor([1.6 / 3, 1.4 / 3]))


def test_two_clients_receive_each_others_table(tmp_path: Path) -> None:
    d, index = data(), [np.arange(0, 40), np.arange(40, 80)]
    world = run(make(FD), folder=tmp_path, d=d, index=index, script=[([0, 1], [0, 1])])
    up = {(a.round, str(a.sender)): a for a in world.artifacts if a.kind == Kind.MEAN_LOGIT_TABLE}
    down = {(a.round, a.seen_by[0]): a for a in world.artifacts if a.kind == Kind.GLOBAL_LOGIT_TABLE}
    for t in (1, 2):
        for own, other in (("client/0", "client/1"), ("client/1", "client/0")):
            np.testing.assert_allclose(
                down[t, own].payload["table"], up[t - 1, other].payload["table"], atol=1e-6
            )


def test_rows_are_distributions_of_owned_classes_only(tmp_path: Path) -> None:
    d, index = data(), parts(data())
    world = run(make(FedAvgFD), folder=tmp_path, d=d, index=index, script=EVERYONE)
    sent = [a for a in world.artifacts if a.kind == Kind.MEAN_LOGIT_TABLE]
    assert len(sent) == 12
    for a in sent:
        owned = np.bincount(d.train.y[index[a.sender.index]], minlength=4) > 0  # type: ignore[index]
        assert a.payload["present"].tolist() == owned.tolist()
        np.testing.assert_allclose(a.payload["table"].sum(1), owned.astype(float), atol=1e-6)  # type: ignore[operator]


def test_the_loss_by_hand() -> None:
    """Two examples, the second of a class without a row: half of CE(g, softmax z); gradient (p - g) / 2."""
    g = table([0.25, 0.75], None)
    g["table"][1] = 9.0  # a row that is not there is not read, whatever it holds
    y = torch.tensor([0])
    p = [0.5, 0.5]
    value, slope = logit_gradient(
        lambda z: distillation_loss(torch.cat([z, z.detach()]), torch.tensor([0, 1]), **g), [0.0, 0.0]
    )
    assert value == pytest.approx(0.5 * np.log(2))
    assert slope == pytest.approx([(p[0] - 0.25) / 2, (p[1] - 0.75) / 2])
    alone = logit_gradient(lambda z: distillation_loss(z, y, **g), [0.0, 0.0])
    assert alone[1] == pytest.approx([0.25, -0.25])


def test_fd_sends_no_model_and_reports_the_mean_of_the_clients(tmp_path: Path) -> None:
    world = run(make(FD), folder=tmp_path, script=EVERYONE)
    assert world.model == {}
    assert {a.kind for a in world.artifacts} == {Kind.MEAN_LOGIT_TABLE, Kind.GLOBAL_LOGIT_TABLE}
    last = world.history[-1]
    assert last["accuracy"] == last["client_accuracy"] < last["personal_accuracy"]
    assert len(last["class_accuracy"]) == 4


def test_fd_without_gamma_is_training_alone(tmp_path: Path) -> None:
    """Client 1 among strangers has the model it has among others; with gamma it does not."""
    d, index = data(), parts(data())
    moved = [index[4], index[1], index[0], index[3], index[2]]
    models = {}
    for gamma in (0.0, 1.0):
        for name, i in (("a", index), ("b", moved)):
            run(make(FD, gamma=gamma), folder=tmp_path / f"{name}{gamma}", d=d, index=i, script=EVERYONE)
            models[name, gamma] = own_models(tmp_path / f"{name}{gamma}")["1"]
    assert same(models["a", 0.0], models["b", 0.0])
    assert not same(models["a", 1.0], models["b", 1.0])


def test_a_lost_reply_does_not_advance_a_clients_model(tmp_path: Path) -> None:
    run(make(FD), folder=tmp_path, reply_loss=1.0)
    assert own_models(tmp_path) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("cls", [FD, FedAvgFD])
def test_a_run_that_was_stopped_continues_to_the_same_bits(cls: type[Any], tmp_path: Path) -> None:
    assert continues(lambda: make(cls), tmp_path, **WORLD)
    if cls is FD:
        run(make(FD), folder=tmp_path / "straight", **WORLD)
        a, b = own_models(tmp_path), own_models(tmp_path / "straight")
        assert a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)


@pytest.mark.nightly
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    for workers in (0, 2):
        run(make(FD), folder=tmp_path / str(workers), script=EVERYONE, workers=workers)
    a, b = own_models(tmp_path / "0"), own_models(tmp_path / "2")
    assert all(same(a[k], b[k]) for k in a)


def test_a_negative_gamma_is_refused() -> None:
    with pytest.raises(UserError, match=r"gamma must be >= 0, got -1"):
        make(FD, gamma=-1.0)
