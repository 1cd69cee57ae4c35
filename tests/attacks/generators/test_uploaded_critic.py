"""Critics that reach the server are queried like those that reach the next client."""

import numpy as np

from fedaudit.attacks.generators.critic_score import CriticScore
from fedaudit.attacks.generators.uploaded_critic import UploadedCritic
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position
from tests.attacks.generators.test_generators import SOME, artifact, one, world

ATTACK = UploadedCritic(UploadedCritic.Config(planted_steps=100))


def test_a_memory_in_an_uploaded_critic_is_found_and_an_untrained_one_tells_nothing() -> None:
    for steps in (SOME, 0):
        w = world(steps)
        view = [artifact(Kind.GAN_D, Channel.UPLINK, w.artifacts[0].payload, ("server",))]
        assert ATTACK.not_applicable(view, w.knowledge) == ""
        claim = ATTACK.run(view, w.knowledge, np.random.default_rng(1))
        assert claim["sender"].tolist() == [0] and claim["before"].tolist() == [-1]
        found = ATTACK.measure(claim, w, np.random.default_rng(2))  # type: ignore[arg-type]
        assert {e.condition.get("client") for e in found} <= {"trained last", "planted", None}
        area, rate = (one(found, m, client="trained last") for m in ("auc", "tpr_at_fpr_0.01"))
        assert area.interval is not None
        if steps:
            assert area.interval[0] > 0.8 and rate.value > 0.5
        else:
            assert area.interval[0] < 0.5 < area.interval[1]


def test_it_is_the_servers_attack_and_relays_are_not() -> None:
    w = world(0)
    relay, upload = (
        artifact(Kind.GAN_D, channel, w.artifacts[0].payload, seen)
        for channel, seen in ((Channel.RELAY, ("client/1",)), (Channel.UPLINK, ("server",)))
    )
    assert ATTACK.card.threat.position == Position.SERVER
    assert "to the server" in ATTACK.not_applicable([relay], w.knowledge)
    assert "to another" in CriticScore(CriticScore.Config()).not_applicable([upload], w.knowledge)
