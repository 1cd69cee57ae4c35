"""Extraction: images that a generator draws again are counted, and coincidences are not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.matching import Matched
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.generators._copies import Copies, copies, drawn_again
from fedaudit.attacks.generators.generator_distance import Made
from fedaudit.attacks.generators.generator_extraction import GeneratorExtraction
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.generators.test_generators import STEPS, one, world

ATTACK = GeneratorExtraction(GeneratorExtraction.Config(planted_steps=250, reference_steps=60, images=2000))


def stack(x: object) -> Examples:
    images = np.asarray(x, np.float32).reshape(-1, 1, 1, 2)
    return Examples(x=images, y=np.zeros(len(images), np.int64))


@cache
def judged(steps: int) -> list[Evidence]:
    """Of a generator trained for so many steps; beside an untrained one little is planted."""
    w, planted = world(steps), ATTACK.config.planted_steps if steps else 1
    attack = GeneratorExtraction(replace(ATTACK.config, planted_steps=planted))
    claim = attack.run([w.artifacts[1]], w.knowledge, np.random.default_rng(1))
    return attack.measure(claim, w, np.random.default_rng(2))  # type: ignore[arg-type]


def test_a_ratio_is_the_distance_in_units_of_the_neighbours() -> None:
    m = Matched(members=stack([[0, 0], [10, 0]]), others=stack([[3, 0], [0, 4], [100, 0]]))
    found = copies(stack([[1, 0], [10, 1]]).x, m, neighbours=2)
    # (1, 0) is at 1, 9, 2, sqrt(17), 99 of them; (10, 1) at sqrt(101), 1, sqrt(50), sqrt(109), sqrt(8101)
    near, far = 17**0.5, 50**0.5
    np.testing.assert_allclose(found.members, [1 / ((2 + near) / 2), 1 / ((far + 101**0.5) / 2)], rtol=1e-12)
    np.testing.assert_allclose(
        found.others, [2 / ((1 + near) / 2), 109**0.5 / ((1 + far) / 2), 8101**0.5 / ((1 + far) / 2)], rtol=1e-12
    )
    assert found.copy.tolist() == [0, 1] and found.nearest_other.tolist() == [0, 0]


def test_an_exact_copy_has_ratio_nought_in_whatever_batch() -> None:
    rng = np.random.default_rng(0)
    m = Matched(members=stack(rng.random((20, 2))), others=stack(rng.random((60, 2))))
    made = np.concatenate([stack(rng.random((30, 2))).x, m.members.x[7:8]])
    whole, parts = copies(made, m, 5), copies(made, m, 5, batch=4)
    assert whole.members[7] == 0 and whole.copy[7] == 30
    np.testing.assert_array_equal(whole.members, parts.members)
    np.testing.assert_array_equal(whole.others, parts.others)
    np.testing.assert_array_equal(whole.copy, parts.copy)


@pytest.mark.nightly
def test_twenty_memorised_images_are_extracted_and_counted() -> None:
    rate = one(judged(STEPS), "extracted_at_fpr_0.01")
    assert rate.trials == 20 and rate.interval is not None
    assert rate.value >= 0.4 and rate.interval[0] > 0.01  # forty times chance, and above it surely
    assert one(judged(STEPS), "image_drawn_again", "negative").value == 0
    assert f"{round(20 * rate.value)} of 20 images" in rate.note
    blind = {b.name: b.value for b in rate.baselines}
    assert blind["untrained generator"] <= 0.1 and blind["reference generator"] <= 0.1
    area = one(judged(STEPS), "auc")
    assert area.interval is not None and area.interval[0] > 0.7
    planted = one(judged(STEPS), "auc", "positive")
    assert planted.interval is not None and planted.interval[0] > 0.6


@pytest.mark.nightly
def test_nothing_is_extracted_from_untrained_weights_or_of_unseen_images() -> None:
    rate = one(judged(0), "extracted_at_fpr_0.01")
    assert rate.interval is not None and rate.interval[0] <= 0.01
    for steps in (0, STEPS):
        silent = one(judged(steps), "auc", "negative")
        assert silent.interval is not None and silent.interval[0] < 0.5 < silent.interval[1]
        rate = one(judged(steps), "extracted_at_fpr_0.01", "negative")
        assert rate.interval is not None and rate.interval[0] <= 0.01


@pytest.mark.nightly
def test_false_alarms_are_as_rare_as_the_interval_says() -> None:
    """Images that depend on nothing, against members and others of one distribution: 95 % intervals."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(100):
        x, y = (stack(rng.normal(size=(n, 2))) for n in (40, 400))
        pairs = [(Made(rng.normal(size=(300, 1, 1, 2))), Matched(members=x, others=y))]
        rate = one(ATTACK._evidence(pairs, {}, "none", ""), "extracted_at_fpr_0.01")
        assert rate.interval is not None
        alarms += rate.interval[0] > 0.01
    assert alarms <= 5


def found(members: list[float], others: list[float]) -> tuple[bool, bool]:
    none = np.zeros(len(members), np.int64)
    ratios = Copies(members=np.array(members), others=np.array(others), copy=none, nearest_other=none)
    return tuple(drawn_again(ratios))


def test_one_verbatim_copy_or_three_near_ones_are_drawn_again_and_no_coincidence_is() -> None:
    assert found([0.01, 0.7, 0.8], [0.6, 0.7, 0.8, 0.9]) == (True, False)
    assert found([0.40, 0.41, 0.42, 0.9], [0.6, 0.7, 0.8, 0.9]) == (True, False)
    assert found([0.40, 0.41, 0.46, 0.9], [0.6, 0.7, 0.8, 0.9]) == (False, False)  # two and a near one
    assert found([0.51, 0.52, 0.53], [0.9, 0.9, 0.9]) == (False, False)  # nearer, and no copies
    assert found([0.6, 0.7, 0.8], [0.01, 0.7, 0.8]) == (False, True)
    assert found([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]) == (False, False)


def test_images_that_depend_on_nothing_are_hardly_ever_drawn_again() -> None:
    rng, alarms = np.random.default_rng(5), 0
    for members, others in ((200, 200), (8, 130)):
        for _ in range(100):
            x, y = (Examples(x=rng.normal(size=(n, 1, 2, 4)), y=np.zeros(n, np.int64)) for n in (members, others))
            m = Matched(members=x, others=y)
            alarms += drawn_again(copies(rng.normal(size=(300, 1, 2, 4)), m, neighbours=10)).member
    assert alarms <= 2  # of 200


@pytest.mark.nightly
def test_one_generator_that_draws_three_of_its_images_is_enough_and_one_that_draws_strangers_is_not() -> None:
    rng = np.random.default_rng(3)
    x, y = (Examples(x=rng.random((n, 1, 4, 4)), y=np.zeros(n, np.int64)) for n in (30, 200))
    m, plain = Matched(members=x, others=y), rng.random((300, 1, 4, 4))

    def again(copied: Examples) -> Evidence:
        made = np.concatenate([plain, copied.x[:3] + rng.normal(0, 0.02, (3, 1, 4, 4))])
        return one(ATTACK._evidence([(Made(made), m)], {}, "none", ""), "image_drawn_again")

    own, strange = again(x), again(y)
    assert (own.trials, own.value) == (1, 1.0) and own.interval is not None and own.interval[0] > 0
    assert [b.value for b in own.baselines] == [0.0] and "3 images drawn nearer" in own.note
    assert strange.value == 0 and [b.value for b in strange.baselines] == [1.0]
    assert one(judged(0), "image_drawn_again", "negative").value == 0


@pytest.mark.nightly
def test_the_galleries_show_copies_and_what_copies_look_like() -> None:
    w, attack = world(STEPS), GeneratorExtraction(replace(ATTACK.config, planted_steps=1))
    claim = attack.run([w.artifacts[1]], w.knowledge, np.random.default_rng(1))
    own, planted = attack.galleries(claim, w)  # type: ignore[arg-type]
    assert "planted" in planted.title
    made, seen, non_members = own.rows.values()
    assert len(own.columns) == len(made) == 8 and list(own.columns) == sorted(own.columns)
    assert np.square(made - seen).sum() < np.square(made - non_members).sum() / 1.5


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="neighbours must be >= 1, got 0"):
        configure(GeneratorExtraction, {"neighbours": 0}, "attacks[0]")
    with pytest.raises(UserError, match="images must be >= 1, got 0"):
        configure(GeneratorExtraction, {"images": 0}, "attacks[0]")
