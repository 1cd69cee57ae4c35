"""Who is flagged as a member: a threshold that held-out people set, and one answer a person."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Unseen
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.attacks.stats import choose_threshold_rank
from fedaudit.fl.threats.threat import Harm

CLIENTS, EACH, HELD_OUT = 10, 72, 449


NOBODY = Examples(x=np.zeros((0, 1, 1, 1), np.float32), y=np.zeros(0, np.int64))


class Sizes:
    """Of the truth only who a client's people are: all of one class, and nobody to compare them with."""

    reference = auxiliary = NOBODY

    def client_examples(self, client: int) -> Examples:
        return Examples(x=np.zeros((EACH, 1, 1, 1), np.float32), y=np.zeros(EACH, np.int64))

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return EACH * client + np.arange(EACH)

    def unseen(self, clients: object) -> Unseen:
        return Unseen(NOBODY, "")


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


def count_both(recorded: list[ScoredPeople], planted: list[ScoredPeople]) -> tuple[PeopleCount, PeopleCount]:
    truth: Any = Sizes()
    few, many = count_flagged(recorded, planted, range(CLIENTS), truth)
    assert (few.harm, many.harm) == (Harm.MEMBERSHIP, Harm.DIFFUSE)
    return few, many


def count(recorded: list[ScoredPeople], planted: list[ScoredPeople]) -> PeopleCount:
    return count_both(recorded, planted)[0]


@pytest.mark.parametrize("seed", range(5))
def test_clean_scores_flag_as_many_as_held_out_people_and_everybody_is_tested(seed: int) -> None:
    rng = np.random.default_rng(seed)
    people = count([score(rng, k) for k in range(CLIENTS)], [])
    assert sum(map(len, people.tested.values())) == sum(people.held.values()) == CLIENTS * EACH
    rank = choose_threshold_rank(HELD_OUT, 0.01)
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
    few, many = count_both([own], [])
    assert (few.hit[0], few.luck) == ((1,), Share(hits=6, trials=400))
    assert (many.hit[0], many.luck) == ((0, 1), Share(hits=40, trials=400))


def test_at_the_threshold_of_a_tenth_a_tie_is_luck_and_no_hit() -> None:
    """Of 30 held-out people the third from above sets it; the fourth scores like it, and so does one member."""
    held_out = np.concatenate([np.arange(26.0), [50, 50, 60, 70]])
    own = ScoredPeople(
        client=0, rows=[0, 1, 2], scores=np.array([50.0, 50.5, 3.0]), held_out=range(30), held_out_scores=held_out
    )
    _, many = count_both([own], [])
    assert (many.hit[0], many.luck) == ((1,), Share(hits=4, trials=30))
    assert "90%" in many.hit_means


def test_a_small_leak_in_everybody_is_seen_at_a_tenth_of_false_alarms_alone() -> None:
    """A score .8 deviations higher hits about 6 of 100 at one, and 32 at ten."""
    rng = np.random.default_rng(12)

    def shift(client: int) -> ScoredPeople:
        clean = score(rng, client)
        return replace(clean, scores=np.asarray(clean.scores) + 0.8)

    few, many = count_both([shift(k) for k in range(CLIENTS)], [])
    shares = [sum(map(len, people.hit.values())) / (CLIENTS * EACH) for people in (few, many)]
    assert shares[0] < 0.1 and 0.25 < shares[1] < 0.4
    assert many.luck.hits / many.luck.trials == pytest.approx(0.1, abs=0.005)


def test_nobody_is_tested_where_nobody_was_held_out() -> None:
    rng = np.random.default_rng(4)
    bare = score(rng, 0)
    few = ScoredPeople(client=0, rows=bare.rows, scores=bare.scores, held_out=[1], held_out_scores=np.zeros(1))
    truth: Any = Sizes()
    assert count_flagged([few], [], [0], truth) == []


def test_whose_score_is_no_number_was_not_tested_and_is_no_held_out_person() -> None:
    clean = score(np.random.default_rng(13), 0)
    scores, held_out = np.array(clean.scores), np.array(clean.held_out_scores)
    scores[[0, 5]], held_out[:3] = np.nan, np.nan
    people = count([replace(clean, scores=scores, held_out_scores=held_out)], [])
    assert people.tested == {0: tuple(row for row in range(EACH) if row not in (0, 5))}
    assert people.luck.trials == HELD_OUT - 3 and people.held[0] == EACH
    other = score(np.random.default_rng(14), 0)  # of another round, in which these have a score
    both = count([replace(clean, scores=scores, held_out_scores=held_out), other], [])
    assert len(both.tested[0]) == EACH and both.luck.trials == HELD_OUT


@pytest.mark.parametrize("whose", ["scores", "held_out_scores"])
def test_nobody_was_tested_where_no_score_is_a_number(whose: str) -> None:
    clean = score(np.random.default_rng(15), 0)
    truth: Any = Sizes()
    nothing = replace(clean, **{whose: np.full(len(getattr(clean, whose)), np.nan)})
    assert count_flagged([nothing], [], [0], truth) == []


def test_planted_people_without_a_score_are_not_seen() -> None:
    rng = np.random.default_rng(16)
    planted = plant(rng, 0)
    scores, held_out = np.array(planted.scores), np.array(planted.held_out_scores)
    scores[:15], held_out[:5] = np.nan, np.nan
    people = count([score(rng, 0)], [replace(planted, scores=scores, held_out_scores=held_out)])
    assert people.planted[0].trials == 20 and people.planted[0].hits <= 5
