"""DP-SGD through adapters of a language model: one epsilon by three accountants, and no lower bound above it."""

import math
import re

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray

from fedaudit.attacks.stats import clopper_pearson
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import state_of
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.private import PrivateTraining, RecordDraws, Trainee, train
from tests.fl.protections.test_dp_sgd_adapters import CLIP, clip_by_hand, gpt, texts
from tests.leaks.adapter_runs import UNIFORM, audit, make_config

NOISE, RATE, STEPS = 1.0, 0.2, 4
PLAYS = 120  # with a text, and without it
SMALL = {
    "base": None,
    "dataset": {"name": "notes", "patients": 40, "vocabulary": 500, "length": 24},
    "model": {"name": "tiny_gpt", "dim": 16, "layers": 1, "task": "lm"},
    "adapters": {"rank": 2, "targets": ["q", "v"]},
}


@pytest.mark.usefixtures("few_epochs")
def test_two_accountants_and_the_noise_audit_agree_with_the_bound_of_adapters() -> None:
    dp_sgd = {"name": "dp_sgd", "noise_multiplier": NOISE, "sample_rate": RATE, "steps": STEPS, "clip_norm": 0.5}
    found = audit(make_config("fedlora", UNIFORM, SMALL, (dp_sgd,)))
    [bound] = [b for b in found.bounds if (b.observer, b.unit) == ("server", "record")]
    assert (bound.unit, bound.accountant, bound.status) == ("record", "PLD", "verified")
    rdp, pld = map(float, re.findall(r"RDP ([\d.]+), PLD of dp-accounting (\d+\.\d+)", bound.note)[0])
    other = RdpAccountant()
    step = dp_accounting.GaussianDpEvent(NOISE)
    other.compose(dp_accounting.PoissonSampledDpEvent(RATE, step), 2 * STEPS)
    assert rdp == pytest.approx(other.get_epsilon(bound.delta), rel=1e-3)
    assert bound.epsilon is not None
    assert pld == pytest.approx(bound.epsilon, rel=1e-2) and bound.epsilon < rdp
    [played] = found.noise_audits
    assert not played.refuted and (played.at_least or 0.0) <= bound.epsilon
    assert not any(
        e.measure == "epsilon_lower" and e.value > bound.epsilon for f in found.findings for e in f.evidence
    )


def play(count: int, noise: float, rate: float, steps: int, member: bool) -> NDArray[np.float64]:
    """How far a client's adapters moved along one text's gradient, by DP-SGD of other noise in each play.

    The client has one other text. What an adversary computes from the model that the client was sent.
    """
    x, y = texts(2)
    net = gpt("lm")
    start = state_of(net)
    toward = clip_by_hand(gpt("lm"), x[1:], y[1:])
    private = PrivateTraining(clip_norm=CLIP, noise_multiplier=noise, sample_rate=rate, steps=steps)
    line, method, held = (
        private.line(0, "client/0", "", ()),
        FedAvg(FedAvg.Config(lr=1.0, batch_size=1)),
        1 + member,
    )
    scores = []
    for i in range(count):
        streams = Streams(2 * i + member)
        draws = RecordDraws(streams.coins("batches"), torch.arange(held))
        source = NoiseSource(streams.noise("batches"))
        trainee = Trainee(start=start, x=x[:held], y=y[:held], const={}, draws=draws, noise=source, line=line)
        end = train(method, private, net, [trainee])[0].state
        scores.append(sum(float(((end[k] - start[k]) * toward[k]).sum()) for k in toward) / CLIP**2)
    return np.array(scores)


def bound_below(ins: NDArray[np.float64], outs: NDArray[np.float64], delta: float) -> float:
    """The least epsilon by which so different plays can come about, at 99 %.

    A threshold is chosen on the first half of plays; of the second it is asked whether p(over | in) is above
    e^epsilon p(over | out) + delta at the ends of both exact intervals (Clopper, Pearson).
    """
    half = len(ins) // 2

    def ask(threshold: float, rows: slice) -> float:
        hits, false = int((ins[rows] > threshold).sum()), int((outs[rows] > threshold).sum())
        low, _ = clopper_pearson(hits, len(ins[rows]), 0.01)
        _, high = clopper_pearson(false, len(outs[rows]), 0.01)
        return math.log(max(low - delta, 1e-12) / high)

    best = max(np.sort(outs[:half])[half // 2 :], key=lambda t: ask(float(t), slice(0, half)))
    return max(0.0, ask(float(best), slice(half, None)))


def compute_epsilons(noise: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
    """By PLD and by RDP."""
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    tight, loose = PLDAccountant(), RdpAccountant(list(range(2, 129)))
    for accountant in (tight, loose):
        accountant.compose(event, steps)
    return tight.get_epsilon(delta), loose.get_epsilon(delta)


@pytest.mark.nightly
def test_a_game_on_private_adapters_bounds_epsilon_from_below_under_both_accountants() -> None:
    """And noise of a tenth of what is declared is refuted by the same game."""
    rate, steps, delta = 0.9, 4, 1e-5
    for made, declared, is_right in ((0.5, 0.5, True), (0.3, 6.0, False)):
        found = bound_below(play(PLAYS, made, rate, steps, True), play(PLAYS, made, rate, steps, False), delta)
        tight, loose = compute_epsilons(declared, rate, steps, delta)
        assert tight < loose
        assert 1.0 < found < tight if is_right else found > loose
