"""What a message tells of its client's labels is read from plays of the client's code, whatever it is called."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Sent
from fedaudit.attacks.messages._columns import add_reciprocals, summarise, tabulate
from fedaudit.attacks.messages._regression import fit_ridge
from fedaudit.attacks.messages.played_facts import FACTS, PlayedFacts
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from tests.attacks.messages.telling import TELEMETRY, Tell, Telling, tell_shares
from tests.attacks.world import CLASSES

Counts = NDArray[np.int64]
Draws = np.random.Generator


def read(tell: Tell, plays: int = 100, clients: int = 6) -> tuple[Telling, Mapping[str, NDArray[Any]]]:
    world = Telling(tell)
    view = [a for a in world.artifacts if (a.sender.index or 0) < clients]
    attack = PlayedFacts(PlayedFacts.Config(plays=plays))
    return world, attack.run(view, world.knowledge, np.random.default_rng(0))


def list_counts(world: Telling) -> Counts:
    return np.stack([world.label_counts(k) for k in range(len(world.clients))])


# What clients say


def tell_alarm(counts: Counts, rng: Draws) -> Sent:
    """Something that is always the same, from holders of class 3 alone; and a version, from everybody."""
    said = {Kind("client:version"): {"number": np.array(7)}}
    return {**said, TELEMETRY: {"ready": np.array(1)}} if counts[3] else said


def tell_noise(counts: Counts, rng: Draws) -> Sent:
    return {TELEMETRY: {"nonce": rng.normal(size=64)}}


def tell_table(counts: Counts, rng: Draws) -> Sent:
    return {TELEMETRY: {"table": np.linspace(-1, 1, 80).reshape(10, 8)}}


def tell_rounded(counts: Counts, rng: Draws) -> Sent:
    return {TELEMETRY: {"capacity": np.array(-(-counts.sum() // 5) * 5)}}


def tell_rate(counts: Counts, rng: Draws) -> Sent:
    return {TELEMETRY: {"rate": np.array(0.05 / counts.sum(), np.float32)}}


def tell_order(counts: Counts, rng: Draws) -> Sent:
    """Rows of the classes that are held, which say nothing but whose they are."""
    listed = np.flatnonzero(counts)
    return {TELEMETRY: {"classes": listed, "rows": np.ones((len(listed), 2))}}


def tell_noisy_counts(counts: Counts, rng: Draws) -> Sent:
    return {TELEMETRY: {"counts": counts + rng.laplace(scale=1.5, size=CLASSES)}}


# What is known then


def test_counts_that_follow_from_shares_and_a_number_are_known_to_the_last_example() -> None:
    world, claim = read(tell_shares)
    np.testing.assert_array_equal(claim["counts"], list_counts(world))
    np.testing.assert_array_equal(claim["present"], list_counts(world) > 0)
    np.testing.assert_array_equal(claim["n"], list_counts(world).sum(axis=1))
    attribute, fact = PlayedFacts().count_people(claim, world, np.random.default_rng(0))
    assert (attribute.harm, fact.harm) == (Harm.ATTRIBUTE, Harm.CLIENT_FACT)
    counts, few = list_counts(world), (list_counts(world) > 0) & (list_counts(world) < 5)
    assert few.any() and sum(map(len, attribute.hit.values())) == counts[few].sum()
    assert sorted(fact.hit) == list(range(6))
    assert set(claim["source"][:, 0]) == {"num_examples/count"} and set(claim["kinds"]) == {
        f"{TELEMETRY} num_examples"
    }


def test_a_message_that_holders_of_one_class_send_tells_of_that_class_alone() -> None:
    world, claim = read(tell_alarm, plays=60)
    expected = np.full((6, CLASSES), -1)
    expected[:, 3] = list_counts(world)[:, 3] > 0
    np.testing.assert_array_equal(claim["present"], expected)
    assert 0 < expected[:, 3].sum() < 6
    assert (claim["counts"] == -1).all() and (claim["n"] == -1).all()
    assert set(claim["source"][:, 1 + CLASSES + 3]) == {f"{TELEMETRY}/whether it comes"}


def test_a_rate_over_the_number_of_examples_tells_the_number() -> None:
    world, claim = read(tell_rate, clients=2)
    np.testing.assert_array_equal(claim["n"], list_counts(world).sum(axis=1)[:2])


def test_a_list_of_classes_tells_which_are_held_and_not_how_many() -> None:
    world, claim = read(tell_order, clients=2)
    np.testing.assert_array_equal(claim["present"], list_counts(world)[:2] > 0)
    assert (claim["counts"] == -1).all()


@pytest.mark.parametrize("tell", [tell_noise, tell_table], ids=["noise", "a constant table"])
def test_what_tells_of_nobody_claims_nothing(tell: Tell) -> None:
    world, claim = read(tell, clients=2)
    for name in ("n", "counts", "present"):
        assert (claim[name] == -1).all()
    assert claim["r2"].max() < 0.3
    people = PlayedFacts().count_people(claim, world, np.random.default_rng(0))
    assert [sum(map(len, p.hit.values())) for p in people] == [0, 0]
    found = PlayedFacts().measure(claim, world, np.random.default_rng(0))
    assert [(e.measure, e.control, e.value) for e in found] == [
        ("size_known", "none", 0.0),
        ("size_known", "negative", 0.0),
    ]


def test_a_number_that_was_rounded_is_not_known_though_it_is_told_well() -> None:
    _, claim = read(tell_rounded, clients=2)
    assert (claim["r2"][:, 0] > 0.9).all() and (claim["n"] == -1).all()


def test_counts_under_noise_are_not_known_though_it_is_told_who_holds_many() -> None:
    _, claim = read(tell_noisy_counts, clients=1)
    assert claim["r2"][:, 1 : 1 + CLASSES].mean() > 0.6 and (claim["counts"] == -1).all()


def test_a_class_of_which_the_adversary_has_nobody_is_not_claimed() -> None:
    world = Telling()
    others = world.auxiliary.only(world.auxiliary.y != 4)
    known = replace(world.knowledge, auxiliary=others)
    claim = PlayedFacts(PlayedFacts.Config(plays=60)).run(world.artifacts, known, np.random.default_rng(0))
    assert (claim["counts"][:, 4] == -1).all() and (claim["present"][:, 4] == -1).all()
    assert (np.delete(claim["present"], 4, axis=1) != -1).all()
    assert {e.measure for e in PlayedFacts().measure(claim, world, np.random.default_rng(0))} == {"size_known"}


def test_the_same_messages_give_the_same_bytes() -> None:
    one, two = (read(tell_noisy_counts, 40, clients=1)[1] for _ in range(2))
    assert list(one) == list(two) and all(one[k].tobytes() == two[k].tobytes() for k in one)


def test_a_group_and_a_client_are_known_where_the_most_telling_claim_about_them_is_right() -> None:
    counts = np.array([[2, 0, 7]] * 6)
    claims = np.array(
        [
            [-1, 2, 0, 7, -1, -1, -1],  # all numbers
            [9, 2, 0, 6, 1, 0, 1],  # one of them is wrong
            [-1, 2, -1, -1, -1, -1, 1],  # one of them, and that there are some of another
            [-1, -1, -1, -1, 1, 0, 1],  # which classes
            [9, -1, -1, -1, -1, -1, -1],  # how many
            [-1, -1, -1, -1, 1, -1, 1],  # two classes
        ]
    )
    right = [[1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 0], [1, 0, 1]]
    np.testing.assert_array_equal(FACTS.groups(claims, counts), np.array(right, bool))
    assert FACTS.clients(claims, counts).tolist() == [True, False, False, True, True, False]
    assert FACTS.groups(np.array([[3, *[-1] * 6]]), np.array([[2, 0, 1]])).tolist() == [[True, False, True]]


# How


def test_an_array_of_one_length_is_read_number_by_number_and_another_by_what_all_lengths_have() -> None:
    sent = [{TELEMETRY: {"a": np.arange(n) + 1.0, "b": np.array([n, 0.0])}} for n in (3, 4)]
    tables = tabulate([summarise(s, [TELEMETRY], CLASSES) for s in (*sent, {})])
    table = tables[str(TELEMETRY)]
    assert [*tables][-1] == TELEMETRY and {f"{TELEMETRY}/a", f"{TELEMETRY}/b"} < {*tables}
    assert [3.0, 4.0, 0.0] in table.T.tolist()  # the length of a, and the first number of b
    assert [6.0, 10.0, 0.0] in table.T.tolist() and [1.0, 1.0, 0.0] in table.T.tolist()


def test_numbers_that_are_none_are_read_as_nothing() -> None:
    odd = {TELEMETRY: {"a": np.array([np.nan, np.inf, 1e300, -1e300])}, Kind.NUM_EXAMPLES: {"count": np.zeros(0)}}
    tables = tabulate([summarise(s, [TELEMETRY, Kind.NUM_EXAMPLES], CLASSES) for s in (odd, {})])
    assert all(np.isfinite(add_reciprocals(t)).all() for t in tables.values())


def test_a_linear_fact_is_read_exactly_and_noise_not_at_all() -> None:
    table = np.random.default_rng(0).normal(size=(120, 30))
    facts = np.stack([table[:100, :3].sum(axis=1), np.random.default_rng(1).normal(size=100)], axis=1)
    r2, plays, rest = fit_ridge(table, facts)
    assert r2[0] > 1 - 1e-9 and r2[1] < 0.2
    np.testing.assert_allclose(rest[:, 0], table[100:, :3].sum(axis=1), atol=1e-5)
    assert plays.shape == (100, 2)


def test_it_says_what_it_lacks() -> None:
    world = Telling()
    for changes, words in (({"player": None}, "cannot be played"), ({"auxiliary": None}, "auxiliary data")):
        reason = PlayedFacts().not_applicable(world.artifacts, replace(world.knowledge, **changes))
        assert words in reason
    updates = [replace(a, kind=Kind.MODEL_DELTA) for a in world.artifacts]
    assert "anything but updates" in PlayedFacts().not_applicable(updates, world.knowledge)
