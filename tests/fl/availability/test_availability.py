"""Who answers: frequencies, patterns that stay, and draws that depend on nothing else."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedaudit.fl.availability.full import Full
from fedaudit.fl.clients.attendance import Attendance
from fedaudit.fl.clients.failures import FailureConfig
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load, names
from fedaudit.fl.runtime.streams import Streams

STREAMS = Streams(11)
ALL = names("fedaudit.fl.availability")


def model(name: str, **settings: Any) -> Availability:
    made: Availability = configure(
        load("fedaudit.fl.availability", name, Availability), settings, "federation.availability"
    )
    return made


def answers(available: Availability, rounds: int, clients: int) -> np.ndarray:
    """[rounds, clients] who answered."""
    table = np.zeros((rounds, clients), dtype=bool)
    for t in range(rounds):
        table[t, list(available.draw(t, range(clients), STREAMS).answering)] = True
    return table


@pytest.mark.parametrize("name", ALL)
def test_every_model_answers_in_order_from_those_asked_and_repeats_itself(name: str) -> None:
    for t in range(5):
        drawn = model(name).draw(t, [1, 4, 5, 9], STREAMS)
        assert list(drawn.selected) == sorted(set(drawn.selected)) and set(drawn.selected) <= {1, 4, 5, 9}
        assert list(drawn.answering) == sorted(set(drawn.answering))
        assert set(drawn.answering) <= set(drawn.selected)
        assert drawn == model(name).draw(t, [1, 4, 5, 9], Streams(11))
    assert model(name).draw(0, [], STREAMS).answering == ()
    assert model(name).title and len(model(name).describe()) > 20


@pytest.mark.parametrize("name", [n for n in ALL if n != "full"])
def test_a_redraw_and_another_seed_give_other_clients(name: str) -> None:
    drawn = model(name, **({"p": 0.5} if name == "leaving" else {}))  # else all who are there answer
    first = drawn.draw(3, range(100), STREAMS)
    assert first != drawn.draw(3, range(100), STREAMS, attempt=1)
    assert first != drawn.draw(3, range(100), Streams(12))


@pytest.mark.parametrize("name", ["bernoulli", "persistent", "clustered"])
def test_whether_a_client_answers_does_not_depend_on_who_else_is_asked(name: str) -> None:
    everyone = set(model(name).draw(2, range(40), STREAMS).answering)
    some = model(name).draw(2, range(0, 40, 3), STREAMS).answering
    assert set(some) == everyone & set(range(0, 40, 3))


def test_full_is_everybody() -> None:
    assert model("full").draw(0, [2, 3, 7], STREAMS).answering == (2, 3, 7)


def test_bernoulli_answers_with_probability_p_independently() -> None:
    table = answers(model("bernoulli", p=0.3), 300, 40)
    assert stats.binomtest(int(table.sum()), table.size, 0.3).pvalue > 1e-3
    per_round = np.bincount(table.sum(1), minlength=41)  # binomial counts, not merely their mean
    expected = stats.binom(40, 0.3).pmf(np.arange(41)) * 300
    groups = [slice(0, 9), slice(9, 11), slice(11, 13), slice(13, 15), slice(15, 41)]
    assert (
        stats.chisquare([per_round[g].sum() for g in groups], [expected[g].sum() for g in groups]).pvalue > 1e-3
    )
    assert not answers(model("bernoulli", p=0), 5, 40).any()
    assert answers(model("bernoulli", p=1), 5, 40).all()


def test_persistent_keeps_its_pattern_for_a_period_and_then_draws_anew() -> None:
    table = answers(model("persistent", p=0.5, period=4), 40, 30).reshape(10, 4, 30)
    assert (table == table[:, :1]).all()
    assert all((a[0] != b[0]).any() for a, b in pairwise(table))
    assert stats.binomtest(int(table[:, 0].sum()), 300, 0.5).pvalue > 1e-3


def test_persistent_with_period_1_is_bernoulli() -> None:
    same = answers(model("persistent", p=0.4, period=1), 20, 30)
    assert (same == answers(model("bernoulli", p=0.4), 20, 30)).all()
    assert (answers(model("persistent", p=0.4, period=2), 20, 30) != same).any()


def test_clustered_answers_with_the_probability_of_cluster_k_mod_n() -> None:
    table = answers(model("clustered", p=[0.9, 0.1, 0.5]), 400, 6)
    for k, p in enumerate([0.9, 0.1, 0.5] * 2):
        assert stats.binomtest(int(table[:, k].sum()), 400, p).pvalue > 1e-3


def test_uniform_draws_its_number_and_everybody_equally_often() -> None:
    table = answers(model("uniform", count=3), 400, 10)
    assert (table.sum(1) == 3).all()
    assert stats.chisquare(table.sum(0)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("settings", "clients", "expected"),
    [
        ({"fraction": 0.29}, 100, 29),
        ({"fraction": 0.1}, 5, 1),
        ({}, 50, 5),
        ({"count": 9}, 4, 4),
        ({"fraction": 0.25}, 10, 2),
    ],
)
def test_uniform_takes_the_whole_part_of_the_fraction_and_at_least_one(
    settings: dict[str, Any], clients: int, expected: int
) -> None:
    assert len(model("uniform", **settings).draw(0, range(clients), STREAMS).answering) == expected


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bernoulli", {"p": 1.2}, "federation.availability.p"),
        ("bernoulli", {"p": float("nan")}, "federation.availability.p"),
        ("persistent", {"period": 0}, "federation.availability.period"),
        ("clustered", {"p": [0.5, 1.5]}, r"p\[1\] must be <= 1, got 1.5"),
        ("uniform", {"count": 3, "fraction": 0.5}, r"both count \(3\) and fraction \(0.5\)"),
        ("uniform", {"count": 0}, "federation.availability.count"),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        model(name, **settings)


def test_delays_beyond_the_limit_come_at_the_declared_rate() -> None:
    for rate in (0.1, 0.4, 0.7):
        table = answers(model("delay", rate=rate), 200, 50)
        assert stats.binomtest(int((~table).sum()), table.size, rate).pvalue > 1e-3
    quarter = answers(model("delay", rate=0.1, limit=0.25), 200, 50)  # P(delay > 1/4) = 0.1 ** 0.25
    assert stats.binomtest(int((~quarter).sum()), quarter.size, 0.1**0.25).pvalue > 1e-3


def test_markov_changes_state_at_the_declared_rates_from_the_stationary_start() -> None:
    table = answers(model("markov", join=0.1, leave=0.3), 60, 400)
    for row in (table[0], table[30]):
        assert stats.binomtest(int(row.sum()), 400, 0.25).pvalue > 1e-3
    before, after = table[:-1], table[1:]
    left, stayed_off = before & ~after, ~before & ~after
    assert stats.binomtest(int(left.sum()), int(before.sum()), 0.3).pvalue > 1e-3
    joined = int((~before).sum()) - int(stayed_off.sum())
    assert stats.binomtest(joined, int((~before).sum()), 0.1).pvalue > 1e-3


def test_markov_that_forgets_is_bernoulli() -> None:
    forgetful = answers(model("markov", join=0.25, leave=0.75), 20, 60)
    assert (forgetful == answers(model("bernoulli", p=0.25), 20, 60)).all()


class Searched(tuple[int, ...]):
    """Counts how often somebody is looked for among them."""

    times = 0

    def __contains__(self, client: object) -> bool:
        Searched.times += 1
        return super().__contains__(client)


def test_nobody_is_looked_for_among_all_who_were_selected() -> None:
    class Everybody(Full):
        def draw(self, *_: Any) -> Participation:
            return Participation(Searched(range(50)), tuple(range(50)))

    of_all = Attendance(Everybody(), STREAMS, 50, range(50), empty_round="skip", failures=FailureConfig())
    assert of_all.draw(0, range(50)).answering == tuple(range(50)) and Searched.times == 0
