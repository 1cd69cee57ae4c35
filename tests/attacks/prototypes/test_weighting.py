"""Under the name of a model or of its change a client may send either, or either weighted; the change is read."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.sources import compute_change, weighting
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind

START = {"w": np.random.default_rng(0).normal(size=(40, 30)), "b": np.random.default_rng(1).normal(size=30)}
CHANGE = {k: 0.05 * np.random.default_rng(2).normal(size=v.shape) for k, v in START.items()}
MODEL = {k: v + CHANGE[k] for k, v in START.items()}


def upload(kind: Kind, payload: dict[str, np.ndarray]) -> Artifact:  # type: ignore[type-arg]
    return Artifact(
        id="u",
        kind=kind,
        channel=Channel.UPLINK,
        round=0,
        sender=Party.client(0),
        seen_by=("server",),
        payload=payload,
    )


@pytest.mark.parametrize("kind", [Kind.LOCAL_MODEL, Kind.MODEL_DELTA])
@pytest.mark.parametrize(("times", "whole"), [(1, True), (0, False), (57, True), (-3, True)])
def test_the_change_is_read_whatever_was_sent_under_the_name(kind: Kind, times: float, whole: bool) -> None:
    sent = {k: times * v for k, v in MODEL.items()} if whole else CHANGE
    a = upload(kind, sent)
    assert weighting(a, START) == pytest.approx(times, rel=0.05)
    for k, v in compute_change(a, START, [a], {}).items():
        assert np.abs(v - CHANGE[k]).max() < 0.1 * np.abs(START[k]).max()
        assert np.corrcoef(v.ravel(), CHANGE[k].ravel())[0, 1] > 0.98


def test_a_long_way_from_the_start_is_still_the_kind_that_was_named() -> None:
    far = {k: v + 2 * np.random.default_rng(3).normal(size=v.shape) for k, v in START.items()}
    assert weighting(upload(Kind.LOCAL_MODEL, far), START) == 1
    assert weighting(upload(Kind.MODEL_DELTA, {k: far[k] - v for k, v in START.items()}), START) == 0


def test_a_counter_does_not_decide_what_was_sent() -> None:
    """Steps that were counted: 1,400 before, and 1,500 more."""
    start, moved = START | {"steps": np.array(1400)}, CHANGE | {"steps": np.array(1500)}
    assert weighting(upload(Kind.MODEL_DELTA, moved), start) == 0
    assert weighting(upload(Kind.LOCAL_MODEL, {k: start[k] + v for k, v in moved.items()}), start) == 1
    floats = {k: v.astype(np.float32) for k, v in moved.items()}  # as a mean makes them
    assert weighting(upload(Kind.MODEL_DELTA, floats), {k: v.astype(np.float32) for k, v in start.items()}) == 0
