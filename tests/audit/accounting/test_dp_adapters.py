"""DP-SGD through adapters of a language model: one epsilon by three accountants, and no lower bound above it."""

import re

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from tests.leaks.adapter_runs import UNIFORM, audit, make_config

NOISE, RATE, STEPS = 1.0, 0.2, 4
SMALL = {
    "base": None,
    "dataset": {"name": "notes", "patients": 40, "vocabulary": 500, "length": 24},
    "model": {"name": "tiny_gpt", "dim": 16, "layers": 1, "task": "lm"},
    "adapters": {"rank": 2, "targets": ["q", "v"]},
}


def test_two_accountants_and_the_noise_audit_agree_with_the_bound_of_adapters() -> None:
    dp_sgd = {"name": "dp_sgd", "noise_multiplier": NOISE, "sample_rate": RATE, "steps": STEPS, "clip_norm": 0.5}
    found = audit(make_config("fedlora", UNIFORM, SMALL, (dp_sgd,)))
    [bound] = [b for b in found.bounds if b.observer == "server"]
    assert (bound.unit, bound.accountant, bound.status) == ("record", "PLD", "verified")
    rdp, least, most = map(float, re.findall(r"RDP ([\d.]+), PRV ([\d.]+) to (\d+\.\d+)", bound.note)[0])
    other = RdpAccountant()
    step = dp_accounting.GaussianDpEvent(NOISE)
    other.compose(dp_accounting.PoissonSampledDpEvent(RATE, step), 2 * STEPS)
    assert rdp == pytest.approx(other.get_epsilon(bound.delta), rel=1e-3)
    assert bound.epsilon is not None
    assert least <= bound.epsilon <= most < rdp
    [played] = found.noise_audits
    assert not played.refuted and (played.at_least or 0.0) <= bound.epsilon
    assert not any(
        e.measure == "epsilon_lower" and e.value > bound.epsilon for f in found.findings for e in f.evidence
    )
