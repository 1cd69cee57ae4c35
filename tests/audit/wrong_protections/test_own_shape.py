"""Canaries in the run's own shape find what they missed at first, and pass what is right."""

import pytest
import torch

from fedaudit.audit.canaries.payload import Passage, Shape
from fedaudit.audit.canaries.run_payload import passed
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.laplace import Laplace
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection
from tests.audit.wrong_protections.channels import LowBits, SilentWhenSmall
from tests.audit.wrong_protections.correct import BackwardsArrays, PublicMask, Rotated, Rounded, Shrunk
from tests.audit.wrong_protections.reused_noise import KeptNoise
from tests.audit.wrong_protections.small_noise import RelativeNoise, WhereItMoved
from tests.audit.wrong_protections.wrong_clip import OwnBase
from tests.audit.wrong_protections.wrong_law import CoinNoise, RadiusNoise

MODEL = {"a": torch.zeros(20, 10), "b": torch.zeros(10)}
SHAPE = Shape(message={Kind.LOCAL_MODEL: MODEL}, reference={Kind.GLOBAL_MODEL: MODEL}, rounds=4, clients=6)


def failed(protection: Protection, seed: int = 5) -> set[str]:
    """The checks that fail of noise on a model of 210 numbers, four rounds and six clients."""
    found = passed(SHAPE, [protection], Streams(seed)).checks(Kind.LOCAL_MODEL, Streams(seed), 0.01)
    assert len(found) > 10
    return {c.name for c in found if not c.passed}


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (WhereItMoved, "amount of noise in the payload"),  # a message that says nothing had none
        (RelativeNoise, "amount of noise in the payload"),
        (SilentWhenSmall, "amount of noise in the payload"),
        (CoinNoise, "shape of the noise in the payload"),
        (RadiusNoise, "lengths of noise"),
        (LowBits, "last bits"),
        (OwnBase, "sensitivity in the run's own shape"),
    ],
)
def test_noise_that_is_wrong_is_named(wrong: type[Protection], check: str) -> None:
    assert check in failed(wrong())


@pytest.mark.parametrize(
    "right",
    [
        DPGaussian(),
        DPGaussian(DPGaussian.Config(clip="row", most_rows=30)),
        Laplace(Laplace.Config(kinds=(Kind.LOCAL_MODEL,), scale=2.0)),
        Shrunk(),
        Rounded(),
        Rotated(),
        PublicMask(),
        BackwardsArrays(),
    ],
    ids=lambda p: type(p).__name__,
)
def test_noise_that_is_right_is_not(right: Protection) -> None:
    assert not failed(right)


def test_what_one_passage_leaves_in_a_protection_does_not_reach_the_next() -> None:
    protection, message, reference = KeptNoise(), *SHAPE.still()
    other = {Kind.LOCAL_MODEL: {"a": torch.zeros(3), "b": torch.zeros(2)}}
    Passage(SHAPE, [protection], Streams(1)).send(0, 0, other, {})
    sent = Passage(SHAPE, [protection], Streams(1)).send(0, 0, message, reference)
    assert sent[Kind.LOCAL_MODEL]["a"].shape == (20, 10)
