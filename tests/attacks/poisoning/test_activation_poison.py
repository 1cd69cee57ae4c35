"""Poisoned activations: what is sent is not what was made, the server learns worse, and others refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.poisoning.activation_poison import ActivationPoison
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.split_learning import SplitfedV1, SplitfedV2
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import EVERYONE, World, data, parts, run, same

SETTINGS: dict[str, Any] = {"rounds": 6, "local_epochs": 2, "batch_size": 8, "lr": 0.1}
WORLD: dict[str, Any] = {"script": EVERYONE, "index": parts(data(), (16, 16, 16, 16, 16), skew=False)}


def poison(**settings: Any) -> ActivationPoison:
    return ActivationPoison(ActivationPoison.Config(**{"clients": (0, 1), **settings}))


def train(cls: Any, adversary: ActivationPoison | None = None, **more: Any) -> World:
    return run(cls(cls.Config(**SETTINGS)), adversary=adversary, **WORLD, **more)


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["swap", "negate", "zero"])
def test_compromised_clients_send_false_activations_and_others_do_not(mode: str, tmp_path: Path) -> None:
    def first(folder: Path, adversary: ActivationPoison | None) -> dict[int, np.ndarray]:
        world = train(SplitfedV1, adversary, folder=folder)
        sent = [a for a in world.artifacts if a.kind == Kind.SMASHED and a.round == 0]
        return {a.sender.index or 0: a.payload["activations"] for a in reversed(sent)}

    true, false = first(tmp_path / "a", None), first(tmp_path / "b", poison(mode=mode, factor=2.0))
    expected = {"swap": np.roll(true[0], 1, 0), "negate": -true[0], "zero": 0 * true[0]}[mode]
    assert np.allclose(false[0], 2 * expected)
    assert np.array_equal(false[2], true[2])


@pytest.mark.nightly
def test_the_model_learns_worse_and_a_robust_rule_over_both_parts_helps() -> None:
    def accuracy(cls: Any, adversary: ActivationPoison | None, **more: Any) -> float:
        return float(train(cls, adversary, **more).history[-1]["accuracy"])

    assert accuracy(SplitfedV2, poison(mode="swap", factor=5.0)) < accuracy(SplitfedV2, None) - 0.3
    bad = poison(mode="negate", factor=5.0)
    assert accuracy(SplitfedV1, bad, aggregator=Median()) > accuracy(SplitfedV1, bad) + 0.3


def test_with_nobody_compromised_nothing_changes() -> None:
    assert same(train(SplitfedV2, poison(clients=0)), train(SplitfedV2))


def test_a_method_without_activations_refuses_it() -> None:
    with pytest.raises(UserError, match="forges smashed"):
        train(FedAvg, poison())
