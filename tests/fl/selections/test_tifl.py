"""TiFL: probabilities by hand, FedAvg with one tier, who is in which tier, credits, and what scores do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.selected import TiFL
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.selections.tifl import share_chances
from tests.attacks.poisoning.test_adversaries import adversary
from tests.fl.methods.worlds_of_methods import SETTINGS, continues
from tests.fl.worlds import EVERYONE, TinyNet, run, same

TIMES = TimeModel(
    capability=np.array([0.5, 1.0, 3.0, 1.0, 2.0]), workload=Counted().workload(TinyNet(), (1, 6, 6))
)
WORLD: dict[str, Any] = {"time_model": TIMES, "script": EVERYONE}


def make(**settings: Any) -> TiFL:
    return TiFL(TiFL.Config(**(SETTINGS | {"rounds": 6, "tiers": 2, "interval": 2} | settings)))


def state_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tree.load(folder / "checkpoint" / "state.safetensors")["state"]["selection"]
    return found


def test_the_worst_tier_with_credit_is_drawn_most_by_hand() -> None:
    """Accuracies .9, .5, .7: 1/6, 3/6, 2/6; without credit for the second 1/3, 0, 2/3."""
    assert share_chances([0.9, 0.5, 0.7], [1, 1, 1]).tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert share_chances([0.9, 0.5, 0.7], [1, 0, 1]).tolist() == pytest.approx([1 / 3, 0, 2 / 3])
    assert share_chances([0.9, 0.5], [0, 0]).tolist() == [0.5, 0.5]


def test_one_tier_of_everybody_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**(SETTINGS | {"rounds": 6})))
    assert same(run(make(tiers=1, chosen=9), **WORLD), run(fedavg, **WORLD))
    assert not same(run(make(), **WORLD), run(fedavg, **WORLD))


def test_tiers_are_of_like_speed_and_hold_everybody_with_data_once(tmp_path: Path) -> None:
    """By examples over capability: 7 / .5, 20 / 1, 11 / 3 and 30 / 2; client 3 has none."""
    run(make(), folder=tmp_path, **WORLD)
    tiers = state_of(tmp_path)["tiers"]
    assert sorted(k for tier in tiers for k in tier) == [0, 1, 2, 4]
    assert 2 in tiers[0] and 1 in tiers[1]


def test_each_round_is_of_one_tier_and_costs_it_a_credit(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, **WORLD)
    state = state_of(tmp_path)
    assert sum(state["credits"]) == 2 * 3 - 6
    for t in range(6):
        trained = {a.sender.index for a in world.artifacts if a.kind == Kind.LOCAL_MODEL and a.round == t}
        assert trained and any(trained <= set(tier) for tier in state["tiers"])


def test_scores_are_shares_of_wrong_answers_every_interval(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, **WORLD)
    scores = [a for a in world.artifacts if a.kind == Kind.LOCAL_LOSS]
    assert {a.round for a in scores} == {2, 4} and len(scores) == 8
    assert all(0 <= float(a.payload["loss"]) <= 1 for a in scores)
    accuracy = {a.sender.index: 1 - float(a.payload["loss"]) for a in scores if a.round == 4}
    state = state_of(tmp_path)
    expected = [np.mean([accuracy[k] for k in tier]) for tier in state["tiers"]]
    assert state["scores"] == pytest.approx(expected)


def test_at_most_so_many_of_a_tier_train() -> None:
    assert {h["delivered"] for h in run(make(chosen=1), **WORLD).history} == {1}


def test_clients_that_overstate_their_loss_have_their_tier_scored_worst(tmp_path: Path) -> None:
    plain = {"rounds": 2, "interval": 1}
    run(make(**plain), folder=tmp_path / "honest", **WORLD)
    honest = state_of(tmp_path / "honest")
    best = int(np.argmax(honest["scores"]))
    liar = adversary("false_claims", clients=tuple(honest["tiers"][best]), factor=1000.0)
    run(make(**plain), folder=tmp_path / "false", adversary=liar, **WORLD)
    assert int(np.argmin(state_of(tmp_path / "false")["scores"])) == best


def test_no_tier_is_refused() -> None:
    with pytest.raises(UserError, match="tiers"):
        configure(TiFL, {"tiers": 0}, "method")


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)
