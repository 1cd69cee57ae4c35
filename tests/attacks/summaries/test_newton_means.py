"""The first Newton step of a logistic regression gives counts and means by class away; a later one does not."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.summaries.newton_means import NewtonMeans, split_sums, summarise
from tests.attacks.summaries.clinics import newton_steps

RNG = np.random.default_rng(0)


def test_the_hand_example_is_right() -> None:
    """x = 2, 4, 9 with labels 0, 0, 1: H = [[3, 15], [15, 101]] / 4 and g = (.5, -1.5), by hand."""
    hessian, gradient = np.array([[3, 15], [15, 101]]) / 4, np.array([0.5, -1.5])
    found = split_sums(hessian, gradient, 0, 2e-16)
    assert found is not None and found[0].tolist() == [2, 1] and found[1].tolist() == [[3], [9]]
    people = Examples(x=np.array([[2.0], [4], [9]]), y=np.array([0, 0, 1]))
    sent = summarise(people)
    assert sent["hessian"].tolist() == hessian.tolist() and sent["gradient"].tolist() == gradient.tolist()


@pytest.mark.parametrize("name", ["diabetes", "wine"])
def test_counts_and_means_of_every_clinic_are_right_and_held_out_peoples_are_not(name: str) -> None:
    world, sent = newton_steps(name, (20, 40, 40))
    attack = NewtonMeans()
    assert not attack.not_applicable(sent, world.knowledge)
    claim = attack.run(sent, world.knowledge, RNG)
    for k in range(3):
        x, y = world.rows(k), world.client_examples(k).y
        true = np.stack([x[y == 0].mean(axis=0), x[y == 1].mean(axis=0)])
        assert np.abs((claim["means"][k] - true) / x.std(axis=0)).max() < 1e-12
        assert claim["counts"][k].tolist() == [(y == 0).sum(), (y == 1).sum()]
    found = {(e.measure, e.control): e for e in attack.measure(claim, world, RNG)}
    means = {control: e for (measure, control), e in found.items() if measure == "class_means_known"}
    assert means["none"].value == means["positive"].value == 1 and means["negative"].value == 0
    assert [b.value for b in means["none"].baselines] == [0]
    assert "public people's are off by 0." in means["none"].note
    assert found["count_exact_match", "none"].value == 1
    assert {p.harm.value for p in attack.count_people(claim, world, RNG)} == {"attribute", "client_fact"}


def test_single_precision_is_read_too() -> None:
    world, sent = newton_steps()
    small = [replace(a, payload={n: v.astype(np.float32) for n, v in a.payload.items()}) for a in sent]
    claim = NewtonMeans().run(small, world.knowledge, RNG)
    assert claim["counts"].tolist() == [world.label_counts(k).tolist() for k in range(3)]


def test_steps_from_other_weights_averages_and_noise_give_nothing() -> None:
    world, later = newton_steps(start=0.1)
    _, sent = newton_steps()
    averages = [replace(a, payload={n: v / 60 for n, v in a.payload.items()}) for a in sent[1:]]
    noise = np.random.default_rng(1)
    noised = [replace(a, payload={n: v + 0.1 * noise.normal() for n, v in a.payload.items()}) for a in sent]
    for view in (later, averages, noised):
        assert not len(NewtonMeans().run(view, world.knowledge, RNG)["client"])
        said = NewtonMeans().not_applicable(view, world.knowledge)
        assert said == "no client's messages hold the gradient and the Hessian of a first Newton step"


def test_three_classes_are_refused_in_words() -> None:
    world, sent = newton_steps()
    said = NewtonMeans().not_applicable(sent, replace(world.knowledge, classes=3))
    assert said == "a logistic regression has two classes, and these data have 3"
