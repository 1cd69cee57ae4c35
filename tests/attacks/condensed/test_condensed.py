"""The attacks on condensed images find single images, fade with n, and find nothing in noise."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack, Examples
from fedaudit.attacks.condensed._images import REAL_START, collect_condensed_images, match_brightness, standardise
from fedaudit.attacks.condensed.condensed_class import CondensedClass
from fedaudit.attacks.condensed.condensed_membership import CondensedMembership
from fedaudit.attacks.condensed.condensed_recovery import CondensedRecovery, correlations
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.condensed.condensed_world import CondensedWorld, message

ATTACKS = (CondensedRecovery, CondensedMembership, CondensedClass)


@cache
def world(blank: bool = False) -> CondensedWorld:
    return CondensedWorld(blank=blank)


@cache
def measured(kind: type[Attack], blank: bool = False) -> tuple[Evidence, ...]:
    here, attack = world(blank), kind()
    claim = attack.run(here.artifacts, here.knowledge, np.random.default_rng(0))
    return tuple(attack.measure(claim, here, np.random.default_rng(0)))


def one(kind: type[Attack], measure: str, blank: bool = False, **where: Any) -> Evidence:
    [found] = [
        e
        for e in measured(kind, blank)
        if e.measure == measure
        and all(e.condition.get(k) == v for k, v in where.items())
        and e.control != "negative"
        and e.condition
    ]
    return found


def negative(kind: type[Attack], blank: bool = False) -> Evidence:
    [found] = [e for e in measured(kind, blank) if e.control == "negative"]
    return found


# Recovery -----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_an_image_of_one_image_gives_that_image_away() -> None:
    found = one(CondensedRecovery, "rank1", n=1, origin="replayed")
    assert found.value > 0.95 and found.control == "none"
    assert all(b.value < 0.3 for b in found.baselines)
    assert one(CondensedRecovery, "nearest_correlation", n=1, origin="replayed").value > 0.9


def test_identity_fades_with_the_number_of_images() -> None:
    rank1 = [one(CondensedRecovery, "rank1", n=n, origin="replayed").value for n in (1, 2, 10)]
    assert rank1[0] > rank1[1] > rank1[2]


def test_a_real_start_is_the_planted_leak_and_flagged_as_a_copy() -> None:
    found = one(CondensedRecovery, "rank1", origin=REAL_START)
    assert found.value == 1 and found.control == "positive"
    assert one(CondensedRecovery, "copies_flagged", origin=REAL_START).value == 1


@pytest.mark.nightly
def test_recovery_from_noise_is_chance_at_every_n() -> None:
    for n in (1, 2, 10):
        found = one(CondensedRecovery, "rank1", blank=True, n=n, origin="replayed")
        assert found.interval is not None and found.interval[0] <= found.baselines[0].value


@pytest.mark.dear("CondensedClass-False", "CondensedClass-True")
@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("kind", ATTACKS)
def test_negative_controls_do_not_fire(kind: type[Attack], blank: bool) -> None:
    found = negative(kind, blank)
    assert found.interval is not None and found.confidence == 0.99
    assert found.interval[0] <= max(b.value for b in found.baselines)


def test_galleries_show_real_condensed_nearest_and_mean() -> None:
    attack, here = CondensedRecovery(), world()
    claim = attack.run(here.artifacts, here.knowledge, np.random.default_rng(0))
    galleries = attack.galleries(claim, here)
    assert galleries and all(len(g.rows) == 4 for g in galleries)
    assert all(len(x) == len(g.columns) for g in galleries for x in g.rows.values())


# Membership ---------------------------------------------------------------------------------------


def test_membership_is_certain_for_one_image_and_fades() -> None:
    auc = [one(CondensedMembership, "auc", n=n, origin="replayed").value for n in (1, 2, 10)]
    assert auc[0] > 0.99 and auc[0] > auc[1] > auc[2] > 0.5
    assert one(CondensedMembership, "auc", origin=REAL_START).control == "positive"


def test_membership_of_noise_is_chance() -> None:
    found = one(CondensedMembership, "auc", blank=True, n=10, origin="replayed")
    assert found.interval is not None and found.interval[0] <= 0.5 <= found.interval[1]


# Class --------------------------------------------------------------------------------------------


def test_the_class_is_recognised_in_images_and_not_in_noise() -> None:
    assert one(CondensedClass, "class_recognised", n=10, origin="replayed").value > 0.8
    assert one(CondensedClass, "class_recognised", blank=True, n=10, origin="replayed").value < 0.4


# Reading ------------------------------------------------------------------------------------------


def test_standardised_images_forget_brightness_contrast_and_normalisation() -> None:
    x = np.random.default_rng(0).random((3, 2, 5, 5))
    scale, shift = np.array([2.0, 0.3])[:, None, None], np.array([-1.0, 4.0])[:, None, None]
    np.testing.assert_allclose(standardise(x * scale + shift), standardise(x), atol=1e-9)
    assert correlations(x[0], -x[:1]).item() == pytest.approx(-1)  # sign-sensitive
    assert correlations(x[0], x[:1] * 3 + 1).item() == pytest.approx(1)


def test_correlation_is_numpys() -> None:
    x = np.random.default_rng(1).random((4, 1, 6, 6))
    expected = np.corrcoef(x.reshape(4, -1))[0, 1:]
    np.testing.assert_allclose(correlations(x[0], x[1:]), expected)


def test_shown_images_have_the_usual_brightness_and_contrast() -> None:
    rng = np.random.default_rng(0)
    like, x = rng.random((50, 1, 6, 6)), 7 * rng.standard_normal((3, 1, 6, 6)) + 9
    found = match_brightness(x, like)
    np.testing.assert_allclose(found.mean((2, 3)), like.mean(), rtol=1e-4)
    np.testing.assert_allclose(found.std((2, 3)), like.std((2, 3)).mean(), rtol=1e-4)


def test_images_without_their_labels_are_left_out() -> None:
    images = message("r0/client-1.uplink", 1, np.zeros((2, 1, 8, 8), np.float32), [0, 1])
    assert len(collect_condensed_images(images)["label"]) == 2
    assert len(collect_condensed_images(images[:1])["label"]) == 0
    short = [images[0], replace(images[1], payload={"labels": np.array([0])})]
    for attack in (kind() for kind in ATTACKS):
        assert "label" in attack.not_applicable(short, world().knowledge)


def test_attacks_that_need_auxiliary_images_say_so() -> None:
    nothing = replace(world().knowledge, auxiliary=Examples(x=np.zeros((0, 1, 8, 8)), y=np.zeros(0)))
    for attack in (CondensedRecovery(), CondensedClass()):
        assert "auxiliary" in attack.not_applicable(world().artifacts, nothing)


def test_settings_without_a_meaning_are_refused() -> None:
    with pytest.raises(UserError, match="gallery must be >= 2, got 1"):
        configure(CondensedRecovery, {"gallery": 1}, "attacks[0]")
    with pytest.raises(UserError, match="members must be >= 1, got 0"):
        configure(CondensedMembership, {"members": 0}, "attacks[0]")


def test_cards_ask_for_images_and_labels_and_nothing_else() -> None:
    for kind in ATTACKS:
        assert kind.card.requires == (Kind.CONDENSED_IMAGES, Kind.CONDENSED_LABELS)
        assert kind.card.control == "condensed" and not kind.card.also_reads
