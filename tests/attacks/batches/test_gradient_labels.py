"""Labels from gradients: the numbers of the paper's two scores, and what turns the first of them round."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.attacks.batches.gradient_labels import GradientLabels, LabelCosine, LabelNorm
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from tests.attacks.batches.batch_world import Gradients

W = np.array([3.0, 4.0])
Y = np.array([0, 0, 1, 1, 0])  # one more of the first label, so that the second is the rarer
EARLY, LATE = [0.2, 0.3, 0.1, 0.4, 0.2], [0.6, 0.7, 0.9, 0.8, 0.6]


def gradients(p: list[float]) -> np.ndarray:
    """(p - y) w of a linear unit with w = (3, 4)."""
    return (np.array(p) - Y)[:, None] * W


def judge(attack: GradientLabels, world: Gradients, **condition: object) -> Evidence:
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, world, np.random.default_rng(1))  # type: ignore[arg-type]
    return next(e for e in found if e.control == "none")


def test_norms_are_those_by_hand_and_turn_round_when_the_network_knows_its_data() -> None:
    rng = np.random.default_rng(0)
    assert np.linalg.norm(gradients(EARLY), axis=1)[:4] == pytest.approx([1, 1.5, 4.5, 3])
    assert np.linalg.norm(gradients(LATE), axis=1)[:4] == pytest.approx([3, 3.5, 0.5, 1])
    assert LabelNorm().score(gradients(EARLY), Y, rng) == [1.0]
    assert LabelNorm().score(gradients(LATE), Y, rng) == [0.0]


@pytest.mark.parametrize("p", [EARLY, LATE])
def test_the_cosine_does_not_turn_round(p: list[float]) -> None:
    assert LabelCosine().score(gradients(p), Y, np.random.default_rng(0)) == [1.0, 1.0]


def test_the_known_example_is_never_scored() -> None:
    single = np.array([0, 0, 1])  # nobody else has the label of the last, so nobody is left to recognise by it
    assert len(LabelCosine().score(gradients(EARLY)[:3], single, np.random.default_rng(0))) == 1
    apart = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])  # each is nearest to the other label's
    assert LabelCosine().score(apart, np.array([0, 0, 1]), np.random.default_rng(0)) == [0.0]


def test_equal_shares_say_which_is_rarer_of_none() -> None:
    even = np.array([0, 0, 1, 1])
    assert LabelNorm().score(gradients(EARLY)[:4], even, np.random.default_rng(0)) == []


def test_norms_find_the_rare_label_before_training_and_cosine_before_and_after() -> None:
    assert judge(LabelNorm(), Gradients(classes=2)).value > 0.95
    assert judge(LabelCosine(), Gradients(classes=2)).value > 0.95
    assert judge(LabelCosine(), Gradients(classes=2, knows=1.0)).value > 0.95
    assert judge(LabelNorm(), Gradients(classes=2, knows=1.0)).value < 0.9


def test_every_number_has_its_round() -> None:
    assert judge(LabelNorm(), Gradients(classes=2)).condition == {"round": 3}


def test_gradients_of_nothing_tell_nothing() -> None:
    world, rng = Gradients(), np.random.default_rng(3)
    noise = [
        replace(a, payload={"gradient": rng.normal(size=(40, 24)).astype(np.float32)}) for a in world.artifacts
    ]
    world.artifacts = noise
    found = judge(LabelCosine(), world)
    assert found.interval is not None and found.interval[0] < 0.5 < found.interval[1]


def test_where_labels_are_sent_or_are_many_it_says_so() -> None:
    world = Gradients()
    assert "more" in LabelNorm().not_applicable(world.artifacts, world.knowledge)
    sent = Artifact(
        id="r00003/client-0.uplink/smashed",
        kind=Kind.SMASHED,
        channel=Channel.UPLINK,
        round=3,
        sender=world.artifacts[0].sender,
        seen_by=("server",),
        payload={"activations": np.zeros((1, 2)), "labels": np.zeros(1)},
    )
    assert "send their labels" in LabelCosine().not_applicable([*world.artifacts, sent], world.knowledge)
