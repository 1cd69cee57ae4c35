"""FLDA is FedAvg with its gate at one, mixes by hand otherwise, and sends the shared model alone."""

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.data.scale import normalise
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.flda import FLDA, Mixture
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.training.local import Handle
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, close, data, parts, run, same


def flda(**settings: Any) -> FLDA:
    return FLDA(FLDA.Config(**(SETTINGS | settings)))


def fedavg() -> FedAvg:
    return FedAvg(FedAvg.Config(**SETTINGS))


def kept(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    memory = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return {k: m["own"] for k, m in memory.items()}


def test_with_the_gate_at_one_it_is_fedavg_to_the_last_bit() -> None:
    assert same(run(flda(gate="one"), **WORLD), run(fedavg(), **WORLD))


def test_with_a_learned_gate_it_is_not_fedavg() -> None:
    assert not same(run(flda(), **WORLD), run(fedavg(), **WORLD))


def test_the_mixture_by_hand() -> None:
    """Both models answer the same for every image: shared (3/4, 1/4), private (1/5, 4/5); gate 2/3."""
    net = TinyNet(classes=2)
    mixture = Mixture(net)
    state = {k: torch.zeros_like(v) for k, v in mixture.state_dict().items()}
    state["shared.head.bias"] = torch.tensor([log(3.0), 0.0])
    state["private.head.bias"] = torch.tensor([0.0, log(4.0)])
    state["gate.bias"] = torch.tensor([log(2.0)])
    handle = Handle(mixture, state)
    x = torch.ones(1, 1, 6, 6)
    expected = [2 / 3 * 3 / 4 + 1 / 3 * 1 / 5, 2 / 3 * 1 / 4 + 1 / 3 * 4 / 5]
    assert handle(x).exp()[0].tolist() == pytest.approx(expected)
    loss = flda().loss(handle, x, torch.tensor([1]), {})
    assert float(loss) == pytest.approx(-log(expected[1]))


def test_at_first_both_models_agree_and_the_gate_is_one_half() -> None:
    """Then shared and private models get half of the plain gradient each: half a FedAvg step."""
    one = {"rounds": 1, "local_epochs": 1, "batch_size": 100, "weight_decay": 0.0}
    mixed = run(flda(**one), script=[([4], [4])])
    plain = run(FedAvg(FedAvg.Config(**(SETTINGS | one))), script=[([4], [4])])
    for name, value in mixed.model.items():
        half = (plain[name] + plain.initial[name]) / 2
        torch.testing.assert_close(value, half, rtol=0, atol=1e-6)


def test_what_a_client_uses_is_the_mixture_and_it_is_scored(tmp_path: Path) -> None:
    """client_accuracy and personal_accuracy are those of shared, private model and gate together, by hand."""
    d, held = data(), parts(data())
    world = run(flda(), folder=tmp_path, d=d, index=held, script=EVERYONE)
    x, y = normalise(torch.from_numpy(d.test.x), d), d.test.y
    everybody, own = [], []
    for k, private in sorted(kept(tmp_path).items(), key=lambda item: int(item[0])):
        net = Mixture(TinyNet())
        net.load_state_dict({f"shared.{n}": v for n, v in world.model.items()} | private)
        hit = (net.eval()(x).argmax(1).numpy() == y).astype(float)
        mix = np.bincount(d.train.y[held[int(k)]], minlength=4)
        by_class = [hit[y == c].mean() if (y == c).any() else 0.0 for c in range(4)]
        everybody.append(hit.mean())
        own.append(mix @ by_class / mix.sum())
    last = world.history[-1]
    assert last["client_accuracy"] == pytest.approx(np.mean(everybody))
    assert last["personal_accuracy"] == pytest.approx(np.mean(own))
    assert last["personal_accuracy"] != pytest.approx(last["accuracy"])


def test_a_gate_at_one_scores_clients_as_the_shared_model() -> None:
    last = run(flda(gate="one"), script=EVERYONE).history[-1]
    assert last["client_accuracy"] == pytest.approx(last["accuracy"])


def test_private_model_and_gate_are_in_no_artifact(tmp_path: Path) -> None:
    world = run(flda(), folder=tmp_path, script=EVERYONE)
    plain = run(fedavg(), folder=tmp_path / "fedavg", script=EVERYONE)
    assert [(a.id, {k: v.shape for k, v in a.payload.items()}) for a in world.artifacts] == [
        (a.id, {k: v.shape for k, v in a.payload.items()}) for a in plain.artifacts
    ]
    private = kept(tmp_path)["4"]
    assert {"private.fc.weight", "gate.weight", "gate.bias"} <= private.keys()
    for a in world.artifacts:
        if "fc.weight" in a.payload:
            assert not np.array_equal(a.payload["fc.weight"], private["private.fc.weight"])
    assert private["gate.weight"].any()  # it was trained


def test_the_private_model_and_the_gate_go_on_where_they_were(tmp_path: Path) -> None:
    """Full batches without momentum: two rounds of one epoch are one round of two."""
    plain = {"batch_size": 100, "momentum": 0.0}
    ends = []
    for rounds, epochs in ((2, 1), (1, 2)):
        folder = tmp_path / str(rounds)
        world = run(flda(rounds=rounds, local_epochs=epochs, **plain), folder=folder, script=[([4], [4])])
        ends.append(world.model | kept(folder)["4"])
    assert close(ends[0], ends[1])


def test_a_lost_reply_does_not_advance_the_private_model(tmp_path: Path) -> None:
    run(flda(), folder=tmp_path, reply_loss=1.0)
    assert kept(tmp_path) == {}


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(flda, tmp_path, **WORLD)
    run(flda(), folder=tmp_path / "straight", **WORLD)
    a, b = kept(tmp_path), kept(tmp_path / "straight")
    assert a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(flda(), script=EVERYONE), run(flda(), script=EVERYONE, workers=2))


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(UserError, match=r"method.gate .*'learned' or 'one', got 'open'"):
        configure(FLDA, {"gate": "open"}, "method")
