"""Power-of-choice is FedAvg over clients drawn by size at d = m, and otherwise picks the worst off."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.power_of_choice import PowerOfChoice
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, run, same


def power(**settings: Any) -> PowerOfChoice:
    return PowerOfChoice(PowerOfChoice.Config(**(SETTINGS | settings)))


def chosen_by_round(world: Any) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for a in world.artifacts:
        if a.kind == Kind.LOCAL_MODEL:
            found.setdefault(a.round, set()).add(a.sender.index)
    return found


class DrawnBySize(FedAvg):
    """FedAvg over the candidates that power-of-choice draws."""

    def choose_candidates(self, state: Any, round: int, federation: Any) -> Any:
        return power(candidates=3, chosen=3).choose_candidates(state, round, federation)


def test_as_many_candidates_as_chosen_is_fedavg_drawn_by_size_to_the_last_bit() -> None:
    """With WORLD's script, redraws and lost replies: the additional question moves no stream."""
    fedavg = DrawnBySize(FedAvg.Config(**SETTINGS, weighting="uniform"))
    assert same(run(power(candidates=3, chosen=3), **WORLD), run(fedavg, **WORLD))


def test_more_candidates_than_chosen_is_not() -> None:
    fedavg = DrawnBySize(FedAvg.Config(**SETTINGS, weighting="uniform"))
    assert not same(run(power(candidates=4, chosen=3), **WORLD), run(fedavg, **WORLD))


def test_the_clients_with_the_largest_losses_train(tmp_path: Path) -> None:
    world = run(power(candidates=4, chosen=2), folder=tmp_path, script=EVERYONE)
    losses: dict[int, dict[int, float]] = {}
    for a in world.artifacts:
        if a.kind == Kind.LOCAL_LOSS:
            losses.setdefault(a.round, {})[a.sender.index] = float(a.payload["loss"])  # type: ignore[index]
    trained = chosen_by_round(world)
    for t, reported in losses.items():
        assert len(reported) == 4  # everybody with data
        assert trained[t] == set(sorted(reported, key=lambda k: -reported[k])[:2])


def test_candidates_are_drawn_in_proportion_to_their_examples() -> None:
    class Sized:
        from fedaudit.fl.runtime.streams import Streams

        parts = [[0] * 10, [], [0] * 30]
        streams = Streams(1)

    method = power(candidates=1, chosen=1)
    drawn = Counter(method.choose_candidates({}, t, Sized())[0] for t in range(400))  # type: ignore[arg-type]
    assert drawn[1] == 0
    assert 265 < drawn[2] < 335  # 300 expected, standard deviation 8.7


def test_only_candidates_are_sent_the_model(tmp_path: Path) -> None:
    world = run(power(candidates=2, chosen=1), folder=tmp_path, script=EVERYONE)
    assert [r["selected"] for r in world.history] == [2, 2, 2]
    assert [r["delivered"] for r in world.history] == [1, 1, 1]
    ups = [a for a in world.artifacts if a.channel == Channel.UPLINK]
    assert len([a for a in ups if a.kind == Kind.LOCAL_LOSS]) == 6
    assert len({a.id for a in ups}) == len(ups)


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(lambda: power(candidates=4, chosen=2), tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    a, b = (run(power(candidates=4, chosen=2), script=EVERYONE, workers=w) for w in (0, 2))
    assert same(a, b)


def test_more_chosen_than_candidates_are_refused() -> None:
    with pytest.raises(UserError, match=r"chosen must be <= candidates \(2\), got 3"):
        power(candidates=2, chosen=3)
