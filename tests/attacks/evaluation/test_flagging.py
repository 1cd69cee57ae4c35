"""Who is flagged as a member: a threshold that held-out people set, and one answer a person."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Images
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.attacks.stats import choose_threshold_rank

CLIENTS, EACH, HELD_OUT = 10, 72, 449


class Sizes:
    """Of the truth only how many people a client holds."""

    def client_images(self, client: int) -> Images:
        return Images(x=np.zeros((EACH, 1, 1, 1), np.float32), y=np.zeros(EACH, np.int64))


def score(
    rng: np.random.Generator, client: int, leak: float = 0.0, scale: float = 1.0, shift: float = 0.0
) -> ScoredPeople:
    scores = rng.normal(size=EACH) + leak * (np.arange(EACH) < EACH // 4)
    return ScoredPeople(
        client=client,
        rows=range(EACH * client, EACH * (client + 1)),
        scores=scale * scores + shift,
        held_out=range(HELD_OUT),
        held_out_scores=scale * rng.normal(size=HELD_OUT) + shift,
    )


def plant(rng: np.random.Generator, client: int, strength: float = 9.0) -> ScoredPeople:
    held_out = rng.normal(size=100)
    scores = strength + rng.normal(size=20)
    return ScoredPeople(
        client=client, rows=range(20), scores=scores, held_out=range(100), held_out_scores=held_out
    )


def count(recorded: list[ScoredPeople], planted: list[ScoredPeople]) -> PeopleCount:
    truth: Any = Sizes()
    (people,) = count_flagged(recorded, planted, range(CLIENTS), truth)
    return people


@pytest.mark.parametrize("seed", range(5))
def test_clean_scores_flag_as_many_as_held_out_people_and_everybody_is_tested(seed: int) -> None:
    rng = np.random.default_rng(seed)
    people = count([score(rng, k) for k in range(CLIENTS)], [])
    assert sum(map(len, people.tested.values())) == sum(people.held.values()) == CLIENTS * EACH
    rank = choose_threshold_rank(HELD_OUT)
    assert people.luck.hits / people.luck.trials == pytest.approx(rank / HELD_OUT)
    assert HELD_OUT < people.luck.trials <= CLIENTS * HELD_OUT  # nobody scores alike at two clients here
    flagged = sum(map(len, people.hit.values())) / (CLIENTS * EACH)
    assert flagged < 0.03  # about rank / HELD_OUT = 1.1 %


def test_whom_one_client_leaks_is_flagged_and_named_by_client() -> None:
    rng = np.random.default_rng(0)
    people = count([score(rng, k, leak=9.0 * (k == 3)) for k in range(CLIENTS)], [])
    assert len(people.hit[3]) >= EACH // 4 > max(len(v) for k, v in people.hit.items() if k != 3)


def test_messages_of_unlike_scales_are_brought_to_one() -> None:
    plain, changed = np.random.default_rng(1), np.random.default_rng(1)
    one = count([score(plain, k) for k in range(CLIENTS)], [])
    other = count([score(changed, k, scale=10.0**k, shift=-5.0 * k) for k in range(CLIENTS)], [])
    assert one == other


def test_several_messages_of_a_client_are_one_answer_a_person() -> None:
    rng = np.random.default_rng(2)
    people = count([score(rng, k) for k in range(CLIENTS) for _ in range(3)], [])
    assert sum(map(len, people.tested.values())) == CLIENTS * EACH


def test_who_is_exposed_in_one_round_of_many_is_flagged_as_often_as_the_planted() -> None:
    """Averaged over rounds, a leak in one of 15 would be a fifteenth of what was planted."""
    rng = np.random.default_rng(5)
    rounds = [score(rng, k, leak=9.0 * (t == 7)) for k in range(CLIENTS) for t in range(15)]
    people = count(rounds, [plant(rng, k) for k in range(CLIENTS)])
    planted = sum(s.hits for s in people.planted.values()) / sum(s.trials for s in people.planted.values())
    leaking = sum(row % EACH < EACH // 4 for rows in people.hit.values() for row in rows)
    assert leaking / (CLIENTS * (EACH // 4)) > planted - 0.1 > 0.7


def test_a_leak_where_scores_end_is_not_drowned_by_messages_whose_scores_have_no_end() -> None:
    """Losses of members end at 0, and in a model that knows nobody a few are far from the others by chance."""
    rng = np.random.default_rng(9)

    def of(client: int, draw: Callable[[int], NDArray[np.float64]], leak: float = 0.0) -> ScoredPeople:
        leaking, scores = np.arange(EACH) < EACH // 4, draw(EACH)
        rows = range(EACH * client, EACH * (client + 1))
        scores = np.where(leaking, (1 - leak) * scores, scores)
        return ScoredPeople(
            client=client, rows=rows, scores=scores, held_out=range(HELD_OUT), held_out_scores=draw(HELD_OUT)
        )

    def draw_loud(number: int) -> NDArray[np.float64]:
        return rng.standard_t(3, number)

    def draw_ending(number: int) -> NDArray[np.float64]:
        return -np.exp(rng.normal(size=number))

    clean = [of(k, draw) for k in range(CLIENTS) for draw in (draw_loud, draw_ending)]
    assert sum(map(len, count(clean, []).hit.values())) < 0.06 * CLIENTS * EACH
    people = count(
        [*(of(k, draw_loud) for k in range(CLIENTS)), *(of(k, draw_ending, 0.99) for k in range(CLIENTS))], []
    )
    leaking = sum(row % EACH < EACH // 4 for rows in people.hit.values() for row in rows)
    assert leaking > 0.7 * CLIENTS * (EACH // 4)


def test_the_planted_pass_the_threshold_of_as_many_messages_as_a_person_is_in() -> None:
    """Judged as if there were one round, plants would pass a threshold that the same leak in a run does not."""
    rng = np.random.default_rng(8)
    rounds = [score(rng, k, leak=3.0 * (t == 7)) for k in range(CLIENTS) for t in range(15)]
    planted = [plant(rng, k, strength=3.0) for k in range(CLIENTS) for _ in range(10)]
    many, one = (count(some, planted).planted for some in (rounds, [score(rng, k) for k in range(CLIENTS)]))
    shares = [sum(s.hits for s in of.values()) / sum(s.trials for s in of.values()) for of in (many, one)]
    assert shares[0] < shares[1] - 0.05


def test_planted_models_that_are_unlike_others_are_judged_among_their_own_held_out_people() -> None:
    rng = np.random.default_rng(6)
    narrow = plant(rng, 0, strength=6.0)
    narrow = ScoredPeople(
        client=0,
        rows=narrow.rows,
        scores=0.1 * narrow.scores,
        held_out=narrow.held_out,
        held_out_scores=0.1 * narrow.held_out_scores - 50 * (np.arange(100) < 40),  # a long lower tail
    )
    people = count([score(rng, k) for k in range(CLIENTS)], [narrow])
    assert people.planted[0].hits > 0.9 * people.planted[0].trials


def test_planted_people_show_whether_anybody_is_seen() -> None:
    rng = np.random.default_rng(3)
    recorded = [score(rng, k) for k in range(CLIENTS)]
    for strength, low, high in ((9.0, 0.8, 1.0), (0.0, 0.0, 0.1)):
        planted = count(recorded, [plant(rng, k, strength=strength) for k in range(CLIENTS)]).planted
        assert set(planted) == set(range(CLIENTS))
        assert low <= sum(s.hits for s in planted.values()) / sum(s.trials for s in planted.values()) <= high


def test_who_scores_as_high_as_the_threshold_is_not_hit_and_held_out_people_who_do_are_luck() -> None:
    """Of 400 held-out people the fourth from above sets the threshold; two more score like it, and one member."""
    held_out = np.concatenate([np.arange(394.0), [900, 900, 900, 901, 902, 903]])
    own = ScoredPeople(
        client=0, rows=[0, 1], scores=np.array([900.0, 900.5]), held_out=range(400), held_out_scores=held_out
    )
    people = count([own], [])
    assert (people.hit[0], people.luck) == ((1,), Share(hits=6, trials=400))


def test_nobody_is_tested_where_nobody_was_held_out() -> None:
    rng = np.random.default_rng(4)
    bare = score(rng, 0)
    few = ScoredPeople(client=0, rows=bare.rows, scores=bare.scores, held_out=[1], held_out_scores=np.zeros(1))
    truth: Any = Sizes()
    assert count_flagged([few], [], [0], truth) == []
