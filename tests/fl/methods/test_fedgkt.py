"""FedGKT: the distillation by hand, training alone at alpha 0, what is sent of each example."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedgkt import FedGKT, distillation_loss, run_network
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, data, parts, run, same


def make(**settings: Any) -> FedGKT:
    return FedGKT(FedGKT.Config(**(SETTINGS | settings)))


def own_models(folder: Path) -> dict[str, Any]:
    memory = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return {k: m["own"] for k, m in memory.items()}


def test_the_distillation_by_hand() -> None:
    """T = 3, teacher (3, -3), student 0: 2.950321 with the 1e-7 of the public code, 2.950320 without."""
    z, teacher = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[3.0, -3.0]], dtype=torch.float64)
    assert float(distillation_loss(z, teacher, 3.0)) == pytest.approx(2.950321, abs=5e-7)
    p = (teacher / 3).softmax(1)
    assert float(9 * (p * (p.log() - log_softmax(z, 1))).sum()) == pytest.approx(2.950320, abs=5e-7)
    assert float(distillation_loss(teacher, teacher, 3.0)) == pytest.approx(0, abs=1e-5)


def test_at_alpha_zero_clients_train_alone(tmp_path: Path) -> None:
    """Federated distillation without its term trains the very same models."""
    run(make(alpha=0.0), folder=tmp_path / "fedgkt", **WORLD)
    run(FD(FD.Config(**SETTINGS, gamma=0.0)), folder=tmp_path / "alone", **WORLD)
    ours, alone = own_models(tmp_path / "fedgkt"), own_models(tmp_path / "alone")
    assert ours.keys() == alone.keys() and all(same(ours[k], alone[k]) for k in ours)
    run(make(), folder=tmp_path / "taught", **WORLD)
    taught = own_models(tmp_path / "taught")
    assert not all(same(taught[k], alone[k]) for k in alone)


def test_features_labels_and_outputs_of_every_example_cross(tmp_path: Path) -> None:
    d, index = data(), parts(data())
    world = run(make(), folder=tmp_path, script=EVERYONE)
    assert {a.kind for a in world.artifacts} == {Kind.FEATURES, Kind.SERVER_LOGITS} and world.model == {}
    models = own_models(tmp_path)
    for a in (a for a in world.artifacts if a.kind == Kind.FEATURES and a.round == 2):
        k = a.sender.index or 0
        assert a.payload["labels"].tolist() == d.train.y[index[k]].tolist()
        net = TinyNet()
        net.load_state_dict(models[str(k)])
        x = (torch.from_numpy(d.train.x[index[k]]) - 0.4) / 0.25
        with torch.no_grad():
            torch.testing.assert_close(torch.tensor(a.payload["features"]), net.features(x), rtol=0, atol=1e-5)
            torch.testing.assert_close(torch.tensor(a.payload["logits"]), net(x), rtol=0, atol=1e-5)


def test_the_server_answers_each_example_by_its_own_network(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, script=EVERYONE)
    sent = {(a.round, str(a.sender)): a.payload for a in world.artifacts if a.kind == Kind.FEATURES}
    down = {(a.round, a.seen_by[0]): a.payload for a in world.artifacts if a.kind == Kind.SERVER_LOGITS}
    assert {t for t, _ in down} == {1, 2}
    state = tree.load(tmp_path / "checkpoint" / "state.safetensors")["state"]
    for k in (0, 1, 2, 4):
        assert down[1, f"client/{k}"]["logits"].shape == (len(sent[0, f"client/{k}"]["labels"]), 4)
        features = torch.tensor(sent[2, f"client/{k}"]["features"])
        torch.testing.assert_close(run_network(state["server"], features), state["logits"][str(k)])


def test_the_public_codes_server_learns_from_labels_alone(tmp_path: Path) -> None:
    states = [
        tree.load(tmp_path / str(on) / "checkpoint" / "state.safetensors")["state"]["server"]
        for on in (True, False)
        if run(make(server_distillation=on, rounds=1), folder=tmp_path / str(on), script=EVERYONE)
    ]
    assert not same(*states)


def test_the_server_learns_its_classes(tmp_path: Path) -> None:
    """With nothing but labels, on features of a client of all classes: better than the commonest class."""
    run(make(server_distillation=False, server_epochs=60), folder=tmp_path, script=EVERYONE)
    state = tree.load(tmp_path / "checkpoint" / "state.safetensors")["state"]
    labels = data().train.y[parts(data())[4]]
    right = np.mean(Tensor(state["logits"]["4"]).argmax(1).numpy() == labels)
    assert right > np.bincount(labels).max() / len(labels)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="temperature"):
        configure(FedGKT, {"temperature": 0.0}, "method")


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)
