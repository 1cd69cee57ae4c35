"""A generator on its way from client to client gives away the client that handed it on, nobody else."""

import numpy as np
import pytest

from fedaudit.attacks.generators.generator_distance import GeneratorDistance
from fedaudit.attacks.generators.relayed_generator import RelayedGenerator
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position
from tests.attacks.generators.test_generators import STEPS, artifact, one, world

SETTINGS = {"planted_steps": 250, "reference_steps": 60, "images": 2000}
ATTACK = RelayedGenerator(RelayedGenerator.Config(**SETTINGS))


def test_members_are_the_images_of_the_client_before_alone() -> None:
    w = world(0)
    weights = w.artifacts[1].payload
    view = [
        artifact(Kind.GAN_G, Channel.RELAY, weights, ("client/0",), 2, 1),
        artifact(Kind.GAN_G, Channel.RELAY, weights, ("client/1",), 1, 0),
        artifact(Kind.GAN_G, Channel.RELAY, weights, ("client/1",), 3, 0),
        artifact(
            Kind.GROUP_MAP,
            Channel.DOWNLINK,
            {"client": np.array([0, 1]), "group": np.array([0, 0])},
            ("client",),
            0,
        ),
    ]
    assert ATTACK.card.threat.position == Position.NEXT_CLIENT
    assert ATTACK.not_applicable(view, w.knowledge) == ""
    handed = ATTACK.select_targets(view)
    assert [(a.round, clients) for a, clients in handed] == [(3, [0]), (2, [1])]


@pytest.mark.nightly
def test_the_client_that_handed_a_memory_on_is_found_out() -> None:
    w = world(STEPS)
    view = [artifact(Kind.GAN_G, Channel.RELAY, w.artifacts[1].payload, ("client/1",))]
    claim = ATTACK.run(view, w.knowledge, np.random.default_rng(1))
    found = ATTACK.measure(claim, w, np.random.default_rng(2))  # type: ignore[arg-type]
    area = one(found, "auc", score="calibrated")
    assert area.value > 0.8 and area.interval is not None and area.interval[0] > 0.65


def test_who_sends_to_the_server_hands_nothing_to_a_client() -> None:
    w = world(0)
    assert "handed a generator to another" in ATTACK.not_applicable(w.artifacts, w.knowledge)
    relay = [artifact(Kind.GAN_G, Channel.RELAY, w.artifacts[1].payload, ("client/1",))]
    server = GeneratorDistance(GeneratorDistance.Config(**SETTINGS))
    assert "sent a generator to the server" in server.not_applicable(relay, w.knowledge)
