"""The audit net tells classes apart, calls a copy a copy, and is the same whenever it is made."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.audit_net import AuditNet, audit_net
from tests.attacks.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(sizes=(1,), clients=2, groups=2)


@pytest.mark.nightly
def test_it_recognises_digits_it_never_saw(world: World) -> None:
    net = audit_net(world)
    assert net.accuracy > 0.9
    assert (net.classes(world.reference.x) == world.reference.y).mean() == net.accuracy


def test_a_copy_is_nearer_than_a_image_of_the_class_and_that_nearer_than_any(world: World) -> None:
    net, x, y = audit_net(world), world.reference.x, world.reference.y
    ones, twos = x[y == 1][:20], x[y == 2][:20]
    assert (net.distance(ones, ones) == 0).all()
    assert net.distance(ones, ones[::-1]).mean() < 0.6 * net.distance(ones, twos).mean()


@pytest.mark.nightly
def test_it_is_the_same_for_the_same_images_and_trained_once(world: World) -> None:
    again = AuditNet(world)
    assert np.array_equal(again.features(world.reference.x), audit_net(world).features(world.reference.x))
    assert audit_net(World(sizes=(1,), clients=3, groups=2)) is audit_net(world)
    other = World(sizes=(1,), clients=2, groups=2, seed=1)
    assert audit_net(other) is not audit_net(world)
