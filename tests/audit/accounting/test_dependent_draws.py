"""Draws that depend on each other are found at every lag and in every pair; independent ones are not accused."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedaudit.audit.accounting import draws
from fedaudit.audit.accounting.draws import contradictions
from fedaudit.fl.availability.bernoulli import Bernoulli, Clustered, Persistent
from fedaudit.fl.availability.uniform import Uniform
from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.streams import Streams

CLIENTS, ROUNDS = 12, 60
Table = Callable[[int, Callable[[int], np.ndarray]], np.ndarray]  # round, honest coins of a round -> who comes


class Wrong(Availability):
    """Claims coins of a client's own in each round at rate p, and makes of honest coins what a table says."""

    title = "Wrong"

    def __init__(self, table: Table, p: float = 0.3) -> None:
        self.table, self.p = table, p

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        def coins(t: int) -> np.ndarray:
            return np.asarray(streams.numpy("participation", t, attempt).random(len(candidates)) < self.p)

        came = self.table(round, coins)
        return Participation(tuple(candidates), tuple(k for k in candidates if came[k]))

    def describe(self) -> str:
        return "wrong"

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", self.p)


def again(lag: int) -> Table:
    """Who came is asked again `lag` rounds later."""
    return lambda t, coins: coins(t - lag if t % (2 * lag) >= lag else t)


def cycle(period: int) -> Table:
    """The same rounds once more, after so many."""
    return lambda t, coins: coins(t % period)


def follows(lag: int) -> Table:
    """One client comes when another one came, `lag` rounds before."""

    def table(t: int, coins: Callable[[int], np.ndarray]) -> np.ndarray:
        came = coins(t).copy()
        came[7] = coins(t - lag)[2] if t >= lag else came[7]
        return came

    return table


def only_at_first(table: Table) -> Table:
    """In the rounds of the run alone; honest later, where nobody would look but the auditor."""
    return lambda t, coins: table(t, coins) if t < ROUNDS else coins(t)


def swap(t: int, coins: Callable[[int], np.ndarray]) -> np.ndarray:
    """Clients come in turns of two rounds: who came with a low number comes next with a high one."""
    return coins(t) if t % 2 == 0 else coins(t - 1)[::-1]


def stay_away(t: int, coins: Callable[[int], np.ndarray]) -> np.ndarray:
    """A client that came comes seldom in the next round, and others come more often."""
    if t % 2 == 0:
        return coins(t)
    more = coins(t + 10_000) & (np.arange(CLIENTS) % 2 == t // 2 % 2)
    return np.where(coins(t - 1), coins(t) & coins(t + 20_000), coins(t) | (more & coins(t + 30_000)))


WRONG: dict[str, Table] = {
    **{f"asked again {lag} rounds later": again(lag) for lag in (1, 2, 3, 4, 7, 13, 29, 47)},
    **{f"the same after {period} rounds": cycle(period) for period in (11, 40, 59)},
    **{f"one client follows another after {lag}": follows(lag) for lag in (0, 1, 3, 17, 50)},
    "one's own earlier draw": lambda t, coins: np.r_[
        coins(t - 9)[:1] if t >= 9 and t % 18 >= 9 else coins(t)[:1], coins(t)[1:]
    ],
    "all the run one draw": only_at_first(lambda t, coins: coins(0)),
    "others come in their places": swap,
    "who came stays away": stay_away,
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", WRONG)
def test_draws_that_depend_on_each_other_are_found(name: str) -> None:
    assert contradictions(Wrong(WRONG[name]), CLIENTS, Streams(5), ROUNDS)


def test_draws_that_depend_in_the_run_only_are_found_among_many_honest_ones() -> None:
    assert contradictions(Wrong(only_at_first(again(3))), CLIENTS, Streams(5), ROUNDS)


def test_who_came_is_asked_again_three_rounds_later() -> None:
    """Faults 1.6: a rate of 0.1 in 60 rounds; the bound that credits it is 5.58, and the truth at least 8.52."""
    for clients in (6, 20, 100):
        [text, *_] = contradictions(Wrong(again(3), 0.1), clients, Streams(1), 60)
        assert text == "draws 3 apart depend on each other"


def test_the_pair_and_the_lag_are_named() -> None:
    assert "whether client 7 comes depends on client 2 17 draws before" in contradictions(
        Wrong(follows(17)), CLIENTS, Streams(5), ROUNDS
    )


def test_a_pair_among_many_clients_is_found_in_the_same_draw() -> None:
    assert any("client 7" in text for text in contradictions(Wrong(follows(0)), 300, Streams(5), ROUNDS))


@pytest.mark.parametrize("sized", [False, True])
def test_pairs_that_are_tried_are_no_more_for_each_client_where_there_are_many(
    sized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "PAIRED", 5)
    monkeypatch.setattr(draws, "MET", 20)
    tried = []
    for clients in (50, 400):
        free = Streams(1).numpy("free").random((40, clients)).argsort(1) < clients // 5
        made = [*draws._test(free, np.full(clients, 0.2), sized, 4, Streams(2))]
        tried.append(sum(t.tests for t in made) / clients)
    assert tried[1] <= 1.1 * tried[0]


@pytest.mark.parametrize("kept", [2, 5])
def test_of_a_fixed_number_some_stay_for_the_next_round(kept: int) -> None:
    class Staying(Uniform):
        def draw(
            self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0
        ) -> Participation:
            now = super().draw(round, candidates, streams, attempt).answering
            if round % 2 == 0:
                return Participation(tuple(candidates), now)
            stay = super().draw(round - 1, candidates, streams, attempt).answering[:kept]
            rest = [k for k in now if k not in stay]
            return Participation(tuple(candidates), tuple(sorted((*stay, *rest[: len(now) - kept]))))

        sampling = Uniform.sampling

    assert contradictions(Staying(Uniform.Config(count=6)), 20, Streams(5), ROUNDS)


def honest(seed: int) -> list[tuple[str, Availability, int]]:
    """Correct draws of every law that earns credit, at rates from rare to nearly always."""
    made: list[tuple[str, Availability, int]] = []
    for clients in (1, 2, 12, 40):
        made += [
            (f"bernoulli {p:g}, {clients}", Bernoulli(Bernoulli.Config(p=p)), clients) for p in (0.02, 0.3, 0.97)
        ]
    made.append(("clustered", Clustered(Clustered.Config(p=(0.9, 0.5, 0.05))), 12))
    made.append(("persistent", Persistent(Persistent.Config(p=0.4, period=4)), 12))
    made += [(f"uniform {n}", Uniform(Uniform.Config(count=n)), 12) for n in (1, 5, 11)]
    made.append(("many", Bernoulli(Bernoulli.Config(p=0.1)), 150))
    return made


def alarms(seeds: range) -> list[str]:
    return [
        f"{what}, seed {seed}: {text}"
        for seed in seeds
        for what, available, clients in honest(seed)
        for text in contradictions(available, clients, Streams(seed), ROUNDS)
    ]


@pytest.mark.nightly
def test_correct_draws_are_not_accused() -> None:
    assert alarms(range(2)) == []


@pytest.mark.nightly
def test_correct_draws_are_not_accused_with_many_seeds() -> None:
    assert alarms(range(100, 160)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [pytest.param(10), pytest.param(400, marks=pytest.mark.nightly)])
def test_false_alarms_are_as_rare_as_stated(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a stated rate of one in five, where they can be counted; the bounds are Chernoff's, so fewer come."""
    monkeypatch.setattr(draws, "ERROR", 0.2)
    laws: list[tuple[Availability, int]] = [
        (Bernoulli(Bernoulli.Config(p=0.1)), 12),
        (Clustered(Clustered.Config(p=(0.9, 0.2))), 6),
        (Uniform(Uniform.Config(count=3)), 8),
    ]
    for available, clients in laws:
        wrong = sum(bool(contradictions(available, clients, Streams(s), ROUNDS)) for s in range(seeds))
        assert wrong <= 0.2 * seeds + 3 * (0.16 * seeds) ** 0.5


def test_a_draw_with_no_claim_is_not_judged() -> None:
    class Silent(Wrong):
        def sampling(self, client: int | None, clients: int) -> Drawn:
            return Drawn("unknown")

    assert contradictions(Silent(cycle(1)), CLIENTS, Streams(1), ROUNDS) == []
