"""Upper bounds of people: the vectors of the specification, their limits, and simulated audits."""

import time

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.attacks.stats import choose_threshold_rank
from fedaudit.audit.verdict.people import (
    bound_by_privacy,
    bound_exposure,
    bound_flagged,
    bound_left,
    bound_luck,
    bound_people,
    bound_people_below,
    bound_sensitivity,
    count_needed_held_out,
    count_needed_people,
    share_unseen,
)
from fedaudit.fl.threats.threat import Aim
from tests.audit.verdict.bounding import draw_bounds

PLANTED = {client: Share(hits=20, trials=20) for client in range(10)}


def make_people(
    *,
    held: int = 72,
    clients: int = 10,
    each: int = 30,
    hit: int = 0,
    planted: dict[int, Share] | None = None,
    left: dict[int, Share] | None = None,
    luck: Share | None = None,
    false_alarms: float = 0.0,
) -> PeopleCount:
    """So many people tested at every client; those hit are the first client's."""
    rows = {c: tuple(range(c * held, c * held + each)) for c in range(clients)}
    return PeopleCount(
        hit_means="named",
        tested=rows,
        hit={0: rows[0][:hit]},
        held=dict.fromkeys(range(clients), held),
        luck=luck or Share(hits=0, trials=1000),
        planted=PLANTED if planted is None else planted,
        left=left or {},
        false_alarms=false_alarms,
    )


@pytest.mark.parametrize(
    ("hits", "tested", "people", "luck", "sensitivity", "bound"),
    [
        (0, 59, 719, 0, 1, 34),
        (3, 150, 719, 0, 0.9, 38),
        (3, 150, 719, 0.02, 0.9, 23),
        (0, 719, 719, 0, 1, 0),
        (0, 10, 10, 0, 0.9, 1),
    ],
)
def test_bounds_are_those_of_the_specification(
    hits: int, tested: int, people: int, luck: float, sensitivity: float, bound: int
) -> None:
    assert bound_people(hits, tested, people, luck=luck, sensitivity=sensitivity, alpha=0.05) == bound


@pytest.mark.parametrize("sensitivity", [1.0, 0.7])
@pytest.mark.parametrize("hits", [0, 3, 11])
def test_a_bound_is_the_last_number_under_which_so_few_hits_are_not_too_rare(
    hits: int, sensitivity: float
) -> None:
    """Against sums over every draw, in 60 of 200 people."""

    def at_most(hits: int, exposed: int) -> float:
        chance = sensitivity + (1 - sensitivity) * 0.03
        total = 0.0
        for drawn in range(min(60, exposed) + 1):
            seen = np.arange(min(drawn, hits) + 1)
            both = stats.binom.pmf(seen, drawn, chance) @ stats.binom.cdf(hits - seen, 60 - drawn, 0.03)
            total += float(stats.hypergeom.pmf(drawn, 200, exposed, 60) * both)
        return total

    bound = bound_people(hits, 60, 200, luck=0.03, sensitivity=sensitivity)
    assert at_most(hits, bound) > 0.03 >= at_most(hits, bound + 1)
    below = bound_people_below(hits, 60, 200, luck=0.03, sensitivity=sensitivity)
    assert below == 0 or 1 - at_most(hits - 1, below) > 0.03 >= 1 - at_most(hits - 1, below - 1)
    assert (below > 0) == (hits == 11)


def test_a_bound_of_a_hundred_thousand_people_takes_no_time_and_more_hits_never_lower_it() -> None:
    started = time.process_time()
    bounds = [
        bound_people(hits, 2000, 100_000, luck=0.01, sensitivity=0.84) for hits in (0, 20, 40, 400, 1900, 2000)
    ]
    assert bounds == sorted(bounds) and bounds[-1] == 100_000
    assert time.process_time() - started < 5


def test_who_tests_nobody_or_sees_nothing_excludes_nothing() -> None:
    assert bound_people(0, 0, 719, luck=0, sensitivity=1) == 719
    assert bound_people(0, 719, 719, luck=0, sensitivity=0) == 719
    with pytest.raises(ValueError, match="0 <= hits <= tested <= people"):
        bound_people(3, 2, 719, luck=0, sensitivity=1)


def test_sensitivity_is_the_lower_end_of_the_plants() -> None:
    assert bound_sensitivity({0: Share(hits=180, trials=200)}) == pytest.approx(0.840, abs=5e-4)
    assert bound_sensitivity({0: Share(hits=54, trials=60)}) == pytest.approx(0.774, abs=5e-4)
    assert bound_sensitivity({}) == 0


def test_an_attack_that_is_blind_to_one_client_has_no_sensitivity() -> None:
    planted = PLANTED | {3: Share(hits=9, trials=20)}
    assert bound_sensitivity(planted) == 0 < bound_sensitivity(planted | {3: Share(hits=10, trials=20)})


def test_luck_is_the_lower_end_and_what_is_left_the_upper() -> None:
    assert bound_luck(Share()) == bound_luck(Share(trials=50)) == 0
    luck = bound_luck(Share(hits=20, trials=1000))
    assert stats.binom.sf(19, 1000, luck) == pytest.approx(0.01)
    shares = [bound_left({0: Share(hits=hits, trials=200)}) for hits in (0, 2, 5)]
    assert shares == pytest.approx([0.015, 0.031, 0.052], abs=5e-4)


def test_the_threshold_of_membership_is_the_specifications_rank() -> None:
    assert [choose_threshold_rank(n) for n in (449, 1000, 2000)] == [11, 19, 32]
    with pytest.raises(ValueError, match="needs non-members"):
        choose_threshold_rank(0)


def test_a_threshold_that_is_chosen_so_has_at_least_its_rate_of_false_alarms_99_times_of_100() -> None:
    scores = np.sort(np.random.default_rng(1).random((4000, 449)), axis=1)[:, ::-1]
    rates = 1 - scores[:, choose_threshold_rank(449) - 1]
    assert 0.984 < (rates >= 0.01).mean() < 0.998


def test_as_many_flagged_as_false_alarms_bound_by_what_chance_adds() -> None:
    assert bound_flagged(7, 719, 719, 0.01) == int(719 * (stats.beta.isf(0.04, 8, 712) - 0.01) / 0.99) == 6
    assert bound_flagged(719, 719, 719, 0.01) == 719


def test_privacy_bounds_the_share_beyond_luck() -> None:
    shares = [bound_by_privacy(epsilon, 0.0, 0.01) for epsilon in (0.688, 1.783, 4)]
    assert shares == pytest.approx([0.01, 0.05, 0.54], abs=2e-3)
    assert bound_by_privacy(0, 0, 0.3) == pytest.approx(0) and bound_by_privacy(900, 0, 0.01) == 1


def test_other_clients_may_leak_where_none_was_seen_to() -> None:
    assert [round(100 * share_unseen(k)) for k in (5, 10, 20, 100)] == [45, 26, 14, 3]
    assert share_unseen(0) == 1


def test_a_census_without_a_hit_bounds_nobody_and_a_sample_more() -> None:
    census = bound_exposure(make_people(each=72), Aim.INVERSION)
    assert (census.at_most, census.by, census.people) == (0, "census", 720)
    sample = bound_exposure(make_people(each=15), Aim.INVERSION, tolerable=0.01)
    assert sample.by == "sample" and sample.at_most == 15
    assert sample.more is not None and 100 < sample.more <= 720 - 150


def test_so_many_people_more_settle_it_and_one_less_does_not() -> None:
    more = bound_exposure(make_people(each=6), Aim.INVERSION, tolerable=0.01).more
    assert more is not None and more % 10 == 0
    bounds = [bound_exposure(make_people(each=6 + more // 10 - fewer), Aim.INVERSION) for fewer in (0, 1)]
    assert (bounds[0].at_most or 0) <= 0.01 * 720 < (bounds[1].at_most or 0)

    def bound(hits: int, tested: int) -> int:
        return bound_people(hits, tested, 719, luck=0, sensitivity=0.84)

    needed = count_needed_people(0, 60, 719, bound, most=0.05 * 719, luck=0)
    assert needed is not None and bound(0, needed) <= 0.05 * 719 < bound(0, needed - 1)
    assert count_needed_people(50, 60, 719, bound, most=0.05 * 719, luck=0) is None


def test_a_client_of_whom_nobody_was_tested_counts_whole() -> None:
    people = make_people(each=72)
    unread = PeopleCount(**(vars(people) | {"tested": {c: r for c, r in people.tested.items() if c}}))
    assert bound_exposure(unread, Aim.INVERSION).at_most == 72


def test_the_client_that_was_tested_least_decides() -> None:
    """90 % of nine clients were tested, a third of the tenth: those exposed may all be its people."""
    people = make_people(each=65)
    sparse = PeopleCount(**(vars(people) | {"tested": people.tested | {9: people.tested[9][:24]}}))
    bound = bound_exposure(sparse, Aim.INVERSION)
    assert bound.at_most == bound_exposure(make_people(each=24), Aim.INVERSION).at_most


def test_people_beside_the_only_one_claimed_count_whole() -> None:
    """Of a message of 575 people one is claimed, and named: at most one exposed person would be false."""
    people = make_people(each=72)
    free = bound_exposure(people, Aim.RECONSTRUCTION, tolerable=0.01)
    beside = PeopleCount(**(vars(people) | {"unclaimed": {0: 71, 3: 2}}))
    bound = bound_exposure(beside, Aim.RECONSTRUCTION, tolerable=0.01)
    assert bound.at_most == (free.at_most or 0) + 73 and bound.more is None
    everybody = PeopleCount(**(vars(people) | {"unclaimed": dict.fromkeys(people.held, 72)}))
    assert bound_exposure(everybody, Aim.RECONSTRUCTION).at_most == 720


def test_an_exact_copy_is_there_or_not() -> None:
    few = {c: Share(hits=6, trials=6) for c in range(10)}
    people = make_people(each=72, planted=few)
    assert bound_exposure(people, Aim.EXFILTRATION).at_most == 0
    assert bound_exposure(people, Aim.RECONSTRUCTION).at_most == 1


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ({}, "No leak was planted through the code of 10 of 10 clients."),
        ({c: s for c, s in PLANTED.items() if c != 4}, "No leak was planted through the code of client 4."),
        (
            PLANTED | {4: Share(hits=2, trials=20)},
            "The attack found 182 of 200 planted leaks, and fewer than half at 1 of 10 clients: too few",
        ),
        ({c: Share(hits=4, trials=20) for c in range(10)}, "The attack found 40 of 200 planted leaks"),
    ],
)
def test_an_attack_that_was_not_seen_to_work_bounds_nothing_and_says_why(
    planted: dict[int, Share], reason: str
) -> None:
    bound = bound_exposure(make_people(each=72, planted=planted), Aim.INVERSION)
    assert bound.at_most is None and bound.reason.startswith(reason)
    assert bound_exposure(make_people(each=0), Aim.INVERSION).reason == "Nobody was tested."


def test_plants_that_the_protections_hide_bound_the_question_alone() -> None:
    hidden = {c: Share(hits=0, trials=20) for c in range(10)}
    bound = bound_exposure(make_people(each=15, left=hidden), Aim.MEMBERSHIP)
    assert (bound.at_most, bound.by) == (int(720 * (1 - 0.05 ** (1 / 200))), "plants")
    shown = bound_exposure(make_people(each=15, left=PLANTED), Aim.MEMBERSHIP)
    assert shown.by == "sample" and shown.left == 1


def test_members_flagged_are_counted_beyond_the_false_alarms() -> None:
    members = make_people(each=72, hit=7, false_alarms=0.01)
    assert bound_exposure(members, Aim.MEMBERSHIP).at_most == bound_flagged(7, 720, 720, 0.01)


def test_a_leak_above_what_is_tolerable_is_cleared_in_at_most_five_of_a_hundred_audits() -> None:
    rng = np.random.default_rng(11)
    spread, few, clean = (
        float((draw_bounds(rng, 200, clients=10, tested=150, **how) <= 0.05).mean())
        for how in ({"exposed": 37}, {"exposed": 37, "in_few_clients": True}, {})
    )
    assert spread <= 0.05 and few <= 0.05 and clean > 0.7


# clients -> chance that a clean question is bounded at n = 150, 200, 300; leaks above 5 %: spread, in few clients
TABLE = {5: (0.86, 0.98, 1.00), 10: (0.79, 0.93, 0.99), 20: (0.77, 0.92, 0.99)}


@pytest.mark.nightly
@pytest.mark.parametrize("clients", TABLE)
def test_the_table_of_bounded_questions_comes_out_again(clients: int) -> None:
    """72 people a client, sensitivity .9, luck .01, 200 plants; the number held out is ours."""
    rng = np.random.default_rng(7)
    for tested, expected in zip((150, 200, 300), TABLE[clients], strict=True):
        clean = (draw_bounds(rng, 1000, clients=clients, tested=tested) <= 0.05).mean()
        assert clean == pytest.approx(expected, abs=0.06)
        for in_few_clients in (False, True):
            leak = draw_bounds(
                rng,
                1000,
                clients=clients,
                tested=tested,
                exposed=72 * clients // 20 + 1,
                in_few_clients=in_few_clients,
            )
            assert (leak <= 0.05).mean() <= 0.02


@pytest.mark.nightly
def test_a_fifth_of_all_people_never_passes() -> None:
    rng = np.random.default_rng(8)
    assert (draw_bounds(rng, 1000, clients=10, tested=150, exposed=144) > 0.05).all()


def test_a_threshold_of_as_many_held_out_people_as_are_asked_for_settles_a_clean_census() -> None:
    """In about 95 of 100 draws, and in fewer with half as many: nobody is exposed, all scores are of one law."""
    rng, people, tolerable = np.random.default_rng(0), 880, 0.05
    needed = count_needed_held_out(people, 0.01, tolerable)
    assert needed is not None

    def settle(held_out: int) -> float:
        rank, settled = choose_threshold_rank(held_out), []
        for _ in range(400):
            threshold = np.sort(rng.random(held_out))[-rank]
            hits = int((rng.random(people) >= threshold).sum())
            settled.append(bound_flagged(hits, people, people, 0.01) <= tolerable * people)
        return float(np.mean(settled))

    assert settle(needed) > 0.92 > 0.88 > settle(needed // 2)
    assert count_needed_held_out(50, 0.01, tolerable) is None  # a census of so few bounds nothing


def test_where_everybody_was_tested_held_out_people_are_asked_for_and_only_by_a_threshold() -> None:
    def ask(hit: int, held_out: int, false_alarms: float = 0.01) -> int | None:
        luck = Share(hits=7, trials=held_out)
        people = make_people(held=88, each=88, hit=hit, luck=luck, false_alarms=false_alarms)
        return bound_exposure(people, Aim.MEMBERSHIP, tolerable=0.05).held_out

    assert ask(47, 216) == count_needed_held_out(880, 0.01, 0.05)
    assert ask(20, 216) is None  # bounded
    assert ask(47, 2_000) is None  # it had more
    assert ask(47, 216, false_alarms=0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"held": {0: 1}},
        {"held": {}},
        {"tested": {0: (1, 1, 2)}},
        {"hit": {0: (3,)}},
        {"hit": {0: (1, 1)}},
        {"hit": {1: (1,)}},
        {"unclaimed": {0: 2}},
        {"false_alarms": 1.0},
        {"luck": {"hits": 2.0, "trials": 1}},
        {"planted": {0: {"hits": -1.0, "trials": 1}}},
    ],
    ids=str,
)
def test_people_whom_no_attack_can_have_tested_are_refused(wrong: dict) -> None:
    right = {
        "hit_means": "named", "tested": {0: (1, 2)}, "hit": {0: (1,)}, "held": {0: 2}, "unclaimed": {0: 1},
        "luck": {"hits": 0.5, "trials": 1},
    }  # fmt: skip
    reader = TypeAdapter(PeopleCount)
    assert reader.validate_python(right).held == {0: 2}
    with pytest.raises(ValueError):
        reader.validate_python(right | wrong)
