"""Trials and buckets: who is behind a message, which of them are judged together, what adversaries guess."""

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.trials import (
    CLASS_MEAN,
    RANDOM,
    Bucket,
    Pools,
    Trial,
    collect_places,
    count_looks,
    describe_place,
    find_members,
    find_place,
    guess_from_auxiliary,
    hash_images,
    size_range,
)
from fedaudit.attacks.evidence import REPLAYED, WHOLE
from tests.attacks.world import World


def trial(origin: str, n: int, *images: int) -> Trial:
    return Trial(row=0, origin=origin, client=0, n=n, image_hashes=frozenset(bytes([i]) for i in images))


@pytest.mark.parametrize(("origin", "n", "low"), [("recorded", 4, 3), (WHOLE, 4, 3), (REPLAYED, 4, 4)])
def test_recorded_messages_are_judged_by_ranges_and_replayed_ones_by_their_size(
    origin: str, n: int, low: int
) -> None:
    assert size_range(origin, n) == low


def test_trials_of_one_place_come_in_the_order_of_the_claim() -> None:
    trials = [trial("recorded", 30), trial(REPLAYED, 1), None, trial("recorded", 50), trial("recorded", 2)]
    places = collect_places(trials, find_place)
    assert list(places) == [("recorded", 21), (REPLAYED, 1), ("recorded", 2)]
    assert [t.n for t in places["recorded", 21]] == [30, 50]


def test_only_a_replayed_message_of_one_image_is_a_leak_that_has_to_be_found() -> None:
    assert describe_place([trial(REPLAYED, 1)]) == ({"n": 1.0, "origin": REPLAYED}, "positive")
    assert describe_place([trial("recorded", 1)])[1] == describe_place([trial(REPLAYED, 2)])[1] == "none"
    assert describe_place([trial("recorded", n) for n in (3, 4, 5, 5)])[0]["n"] == 5  # a number that there is


def test_trials_are_apart_where_no_image_is_behind_both() -> None:
    assert trial("recorded", 2, 1, 2).is_apart(trial("recorded", 1, 3))
    assert not trial("recorded", 2, 1, 2).is_apart(trial("recorded", 2, 2, 3))


def test_what_is_only_compared_is_no_look() -> None:
    buckets = [Bucket(trials=[], condition={"n": 1.0, "origin": o}) for o in ("recorded", REPLAYED, WHOLE)]
    assert count_looks(buckets) == 2
    assert buckets[0].judge(2).looks == 2 and buckets[0].samples == 1


def test_members_come_class_by_class_and_nobody_behind_a_message_is_none() -> None:
    world = World(sizes=(), clients=2)
    found = find_members(world, "r00003/client-1.uplink/local_model", range(10))
    assert found is not None and np.unique(found.y).tolist() == [2, 3] and (np.diff(found.y) >= 0).all()
    assert len(found) == len(world.client_examples(1))
    assert find_members(world, "r00003/client-1.uplink/local_model", [7]) is None


def test_non_members_are_no_copies_of_members() -> None:
    world = World(sizes=(), clients=2)
    some = world.reference.of_class(3)[:5]
    left = Pools(world).without(3, hash_images(some))
    assert not hash_images(left.images) & hash_images(some)


def test_adversaries_without_the_message_guess_the_class_mean_or_any_image_of_it() -> None:
    x = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1)
    auxiliary = Examples(x=x, y=np.array([0, 0, 1, 1]))
    found = guess_from_auxiliary(np.array([1, 0, 7]), auxiliary, np.random.default_rng(0))
    assert found[CLASS_MEAN].ravel().tolist() == [2.5, 0.5, 1.5]  # of all where the class is not known
    assert found[RANDOM][0].item() in (2, 3) and found[RANDOM][1].item() in (0, 1)
