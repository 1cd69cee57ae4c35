"""Speed profile: exact without jitter, honest about what is only relative, silent without times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.timing.speed_profile import RATIO, SOLVED, TOLD, Exchange, SpeedProfile, profile
from fedaudit.fl.kinds import Kind
from tests.attacks.timing.timed import Timed

RNG = np.random.default_rng(0)


def played(world: Timed, view: Any = None) -> tuple[Any, list[Evidence]]:
    attack = SpeedProfile()
    claim = attack.run(world.artifacts if view is None else view, world.knowledge, RNG)
    return claim, attack.measure(claim, world, np.random.default_rng(1))  # type: ignore[arg-type]


def value(found: Sequence[Evidence], measure: str, control: str = "none") -> float:
    [one] = [e for e in found if e.measure == measure and e.control == control]
    return one.value


def test_two_exchanges_of_different_work_give_speed_and_size() -> None:
    """F7's times at n = 0 and 3: 300 examples and .5, to 1e-9."""
    a = [(2 * 17_510_136, 3 * 1.93564e-4), (17_510_136 + 4_452_600, 3 * 1.43990e-4)]
    seen = [(b / 2**20 / 100, c / 0.4) for b, c in a]
    times = [(x + y * 300) / 0.5 for x, y in seen]
    assert times == pytest.approx([1.538995, 1.066859], abs=1e-5)
    kappa, size, how = profile([Exchange(t, x, y, float("nan")) for t, (x, y) in zip(times, seen, strict=True)])
    assert (kappa, size, how) == (pytest.approx(0.5, rel=1e-9), pytest.approx(300.0, rel=1e-9), SOLVED)


def test_without_jitter_every_device_and_every_size_is_known() -> None:
    claim, found = played(Timed())
    assert set(claim["how"]) == {SOLVED}
    assert value(found, "device_class") == value(found, "size_known") == 1
    assert value(found, "speed_rank") == pytest.approx(1.0, abs=0.02)  # of two equal speeds one comes first
    assert value(found, "size_relative_error") < 1e-9


def test_a_number_of_examples_that_is_sent_gives_the_speed_at_once() -> None:
    claim, found = played(Timed(frozen=(0,), says=True))
    assert set(claim["how"]) == {TOLD} and value(found, "device_class") == 1
    assert not [e for e in found if e.measure == "size_known"]  # it was sent, not found out


def test_answers_that_are_all_alike_give_ratios_only_and_the_finding_says_so() -> None:
    claim, found = played(Timed(frozen=(0, 0)))
    assert set(claim["how"]) == {RATIO} and (claim["device"] == -1).all()
    [real] = [e for e in found if e.measure == "device_class" and e.control == "none"]
    assert real.value == 0 and "only the order" in real.note
    assert np.median(claim["speed"]) == pytest.approx(1.0) and value(found, "speed_rank") > 0.75


def test_jitter_takes_away_and_more_of_it_more() -> None:
    known = [value(played(Timed(jitter=j, says=True))[1], "device_class") for j in (0.0, 0.2, 0.8)]
    assert known[0] == 1 > known[1] > known[2]


def test_without_a_clock_frozen_layers_order_the_devices_and_nothing_else_does() -> None:
    world = Timed(frozen=(0, 3))
    slow = [a for a in world.artifacts if a.kind == Kind.FROZEN_COUNT]
    slow = [a for a in slow if (a.round == 0) == (world.capability(a.sender.index or 0) > 1.5)]
    claim = SpeedProfile().run(slow, Knowledge(classes=2, shape=(1, 8, 8)), RNG)
    [order] = SpeedProfile().measure(claim, world, RNG)  # type: ignore[arg-type]
    assert order.measure == "speed_rank" and order.value > 0.7
    reason = SpeedProfile().not_applicable([], world.knowledge)
    assert reason == "the federation has no clock, so nobody sees how long a client takes"
