"""IFCA is FedAvg with one model, separates clients whose labels disagree, and leaves unchosen models alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.delivery import Delivery, take_model
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.ifca import IFCA, shuffle_entries
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, as_delivered, data, run, same


def ifca(**settings: Any) -> IFCA:
    return IFCA(IFCA.Config(**(SETTINGS | settings)))


def swapped() -> tuple[Data, list[Any]]:
    """Two kinds of clients: 1 and 3 call every class by the next class's name."""
    d = data()
    index = [np.arange(i, 80, 4) for i in range(4)]
    y = d.train.y.copy()
    for k in (1, 3):
        y[index[k]] = (y[index[k]] + 1) % 4
    return replace(d, train=replace(d.train, y=y)), index


def test_one_model_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(ifca(clusters=1), **WORLD), run(fedavg, **WORLD))
    assert same(run(ifca(clusters=1, shared_extractor=True), **WORLD), run(fedavg, **WORLD))


def test_two_models_are_not_fedavg() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert not same(run(ifca(), **WORLD), run(fedavg, **WORLD))


def test_clients_whose_labels_disagree_part_ways(tmp_path: Path) -> None:
    d, index = swapped()
    script = [([0, 1, 2, 3], [0, 1, 2, 3])]
    method = ifca(rounds=12, lr=0.2)
    world = run(method, folder=tmp_path, d=d, index=index, script=script)
    last = {a.sender.index: int(a.payload["cluster"]) for a in world.artifacts if a.kind == Kind.CLUSTER_ID}
    assert last[0] == last[2] != last[1] == last[3]


def test_the_client_takes_the_model_with_the_smallest_loss(tmp_path: Path) -> None:
    """Two models: random, and one whose bias says class 0, which is all client 0 has."""

    class Fixed(IFCA):
        def start(self, federation: Any) -> dict[str, Any]:
            state = super().start(federation)
            bias = torch.tensor([0.0, 9.0, 9.0, 9.0])
            state["models"]["0"] = state["models"]["0"] | {"head.bias": bias}
            return state

    world = run(Fixed(ifca(rounds=1).config), folder=tmp_path, script=[([0], [0])])
    (chosen,) = [a for a in world.artifacts if a.kind == Kind.CLUSTER_ID]
    assert int(chosen.payload["cluster"]) == 1


def test_a_model_nobody_chose_stays_and_others_average_their_own_clients() -> None:
    method = ifca(clusters=3)
    method.head = ()
    arrived = [
        Delivery(
            client=k,
            examples=n,
            message={Kind.LOCAL_MODEL: {"w": torch.tensor([w])}, Kind.CLUSTER_ID: {"cluster": torch.tensor(j)}},
        )
        for k, (n, w, j) in enumerate([(1, 1.0, 0), (3, 5.0, 0), (2, 7.0, 2)])
    ]
    before = {
        "models": {str(j): {"w": torch.tensor([-float(j)])} for j in range(3)},
        "members": torch.zeros(3, dtype=torch.float64),
    }
    after = method.combine(before, as_delivered(arrived), 0)
    assert [float(after["models"][str(j)]["w"]) for j in range(3)] == [4.0, -1.0, 7.0]
    assert float(method.get_model(after)["w"]) == 4.0  # four examples are behind it, two behind the last
    later = Delivery(client=0, examples=3, message=arrived[2].message)
    after = method.combine(after, as_delivered([later]), 1)
    assert float(method.get_model(after)["w"]) == 7.0  # now five are


def test_a_shared_extractor_is_the_same_in_every_model(tmp_path: Path) -> None:
    world = run(ifca(shared_extractor=True), folder=tmp_path, script=EVERYONE)
    sent = [a for a in world.artifacts if a.channel == Channel.DOWNLINK]
    for artifact in sent:
        first, second = (take_model(artifact.payload, j) for j in (0, 1))  # type: ignore[arg-type]
        assert np.array_equal(first["fc.weight"], second["fc.weight"])
        assert not np.array_equal(first["head.weight"], second["head.weight"])


def test_other_models_start_as_shuffled_copies() -> None:
    value = torch.arange(12.0).reshape(3, 4)
    other = shuffle_entries(value, torch.Generator().manual_seed(1))
    assert not torch.equal(other, value)
    assert torch.equal(other.flatten().sort().values, value.flatten())


def test_an_update_is_clipped_relative_to_the_chosen_model(tmp_path: Path) -> None:
    """Clipped to almost nothing, what arrives is one of the models that were sent."""
    clip = DPGaussian(DPGaussian.Config(clip_norm=1e-6, noise_multiplier=0.0))
    world = run(ifca(rounds=1), folder=tmp_path, script=EVERYONE, protections=[clip])
    (sent,) = [a for a in world.artifacts if a.channel == Channel.DOWNLINK]
    chosen = {a.sender: a for a in world.artifacts if a.kind == Kind.CLUSTER_ID}
    for a in (a for a in world.artifacts if a.kind == Kind.LOCAL_MODEL):
        j = int(chosen[a.sender].payload["cluster"])
        np.testing.assert_allclose(a.payload["fc.weight"], sent.payload[f"{j}/fc.weight"], atol=1e-5)


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(ifca, tmp_path, **WORLD)


def test_no_models_are_refused() -> None:
    with pytest.raises(UserError, match="clusters must be >= 1, got 0"):
        ifca(clusters=0)
