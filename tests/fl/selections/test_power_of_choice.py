"""Power-of-choice is FedAvg over clients drawn by size at d = m, and otherwise picks the worst off."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.selection import Choice, Selection
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import select_by
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.selected import PowerOfChoice
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, run, same


def power(**settings: Any) -> PowerOfChoice:
    return PowerOfChoice(PowerOfChoice.Config(**(SETTINGS | settings)))


class DrawnBySize(Selection):
    """The candidates that power-of-choice draws, all of whom train."""

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        return power(candidates=3, chosen=3).selection.choose_candidates(choice)


def average_drawn() -> FedAvg:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS, weighting="uniform"))
    select_by(fedavg, DrawnBySize())
    return fedavg


def test_as_many_candidates_as_chosen_is_fedavg_drawn_by_size_to_the_last_bit() -> None:
    """With WORLD's script, redraws and lost replies: the additional question moves no stream."""
    assert same(run(power(candidates=3, chosen=3), **WORLD), run(average_drawn(), **WORLD))


def test_more_candidates_than_chosen_is_not() -> None:
    assert not same(run(power(candidates=4, chosen=3), **WORLD), run(average_drawn(), **WORLD))


def test_candidates_are_drawn_in_proportion_to_their_examples() -> None:
    class Sized:
        from fedaudit.fl.runtime.streams import Streams

        parts = [[0] * 10, [], [0] * 30]
        streams = Streams(1)

    choices = (Choice(None, Sized(), {}, t) for t in range(400))  # type: ignore[arg-type]
    drawn = Counter(power(candidates=1, chosen=1).selection.choose_candidates(c)[0] for c in choices)
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
