"""Noise on what is handed on: its deviation, and what the clip bounds."""

import pytest
import torch

from fedaudit.fl.families.visit_noise import NoiseConfig, line_of, no_noise, protect
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import State
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.streams import Streams


def apply(kind: Kind, sent: State, received: State, config: NoiseConfig, seed: int = 0) -> State:
    line = line_of(kind, 0, 3, config, ("server",))
    return protect(kind, sent, received, config, NoiseSource(Streams(seed).noise("visit")), line)


def test_printed_noise_has_its_deviation_and_clips_nothing() -> None:  # T-GA-9
    before = {"w": torch.full((200, 300), 7.0), "count": torch.tensor(3)}
    config = NoiseConfig(scale=0.02, critic=0.5)
    after = apply(Kind.GAN_D, before, {}, config)
    noise = after["w"] - before["w"]
    assert abs(float(noise.std()) / 0.01 - 1) < 0.05 and abs(float(noise.mean())) < 1e-4
    assert torch.equal(after["count"], before["count"])
    assert apply(Kind.GAN_D, before, {}, no_noise()) is before


def test_accounted_noise_clips_the_change_of_the_whole_network() -> None:
    start = {"a": torch.ones(3), "b": torch.ones(4)}
    sent = {"a": torch.tensor([4.0, 1, 1]), "b": torch.tensor([1.0, 1, 1, 5])}  # changed by norm 5
    clip = NoiseConfig(mode="accounted", scale=0.0, model=1.0)
    out = apply(Kind.RELAY_MODEL, sent, start, clip)
    assert out["a"].tolist() == pytest.approx([1.6, 1, 1]) and out["b"][3] == pytest.approx(1.8)
    wide = NoiseConfig(mode="accounted", scale=0.0, model=9.0)
    kept = apply(Kind.RELAY_MODEL, sent, start, wide)
    assert all(torch.equal(kept[k], sent[k]) for k in sent)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), torch.finfo(torch.float32).max])
def test_a_visit_that_diverged_hands_on_what_the_clip_and_the_noise_leave_of_it(bad: float) -> None:
    start = {"a": torch.full((3,), -1e32), "b": torch.ones(4)}
    sent = {"a": torch.tensor([bad, -1e32, -1e32]), "b": torch.tensor([1.0, 1, 1, 3])}
    clip = NoiseConfig(mode="accounted", scale=0.0, model=1.0)
    out = apply(Kind.RELAY_MODEL, sent, start, clip)
    assert torch.equal(out["a"], start["a"]) and out["b"].tolist() == [1, 1, 1, 2]
    noised = apply(Kind.RELAY_MODEL, sent, start, NoiseConfig(mode="accounted", scale=1.0))
    assert all(bool(v.isfinite().all()) for v in noised.values())


def test_without_noise_and_clipping_there_is_no_line_in_the_ledger() -> None:
    assert line_of(Kind.GAN_G, 0, 3, no_noise(), ("server",), "") is None
    bare = line_of(Kind.GAN_G, 0, 3, NoiseConfig(mode="accounted", scale=0.0), ("server",), "")
    assert bare is not None and bare.mechanism == "none" and bare.clip_norm == 1.0
