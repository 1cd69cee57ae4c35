"""Fang's attacks, alternating minimisation and 3DFed against what they say of themselves."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.kinds import Kind
from tests.attacks.poisoning.test_adversaries import adversary, changes, meeting
from tests.attacks.poisoning.test_in_a_federation import small
from tests.fl.aggregators.test_rules import rule
from tests.fl.worlds import same


def test_krum_takes_what_fangs_attack_sends_and_the_model_goes_the_other_way() -> None:
    honest = (np.random.default_rng(1).standard_normal((8, 5)) + 0.3).tolist()
    own = dict.fromkeys(range(3), (0.3, 0.3, 0.3, 0.3, 0.3))

    def base(change: Any) -> dict[Any, Any]:
        return {Kind.LOCAL_MODEL: {"w": torch.tensor(change, dtype=torch.float32)}}

    met = meeting({}, [])
    zero = {Kind.GLOBAL_MODEL: {"w": torch.zeros(5)}}
    met = type(met)(
        round=0,
        own={k: base(v) for k, v in own.items()},
        honest={10 + i: base(h) for i, h in enumerate(honest)},
        received=dict.fromkeys([*own, *range(10, 18)], zero),
        before={},
        rng=met.rng,
        parameters=("w",),
        aggregate=None,
    )
    sent = adversary("fang_krum").collude(met).messages
    forged = [m[Kind.LOCAL_MODEL]["w"].tolist() for m in sent.values()]
    rows = torch.tensor([*forged, *honest])
    found = rule("krum", f=3).combine(rows, torch.ones(11).double(), range(11), None)  # type: ignore[arg-type]
    assert next(iter(found.kept)) < 3 and float(found.change @ rows[3:].double().mean(0)) < 0


def test_values_beyond_the_honest_ones_are_drawn_anew_for_each_client() -> None:
    found = changes(adversary("fang_trimmed_mean").collude(meeting({0: (1, 1, 1), 1: (1, 1, 1)})))
    for value in found.values():  # the honest six are least 0 1 1, and the mean goes up
        assert 0 <= value[0] <= 0 and 0.5 <= value[1] <= 1 and 0.5 <= value[2] <= 1
    assert found[0] != found[1]


def test_masks_of_3dfed_add_up_to_nothing_and_part_the_forged_as_the_honest_are() -> None:
    rng = random.Random(1)
    honest = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(9)]
    own = {k: (0.3 * k, 0.1, -0.2) for k in range(4)}
    masked = np.array(list(changes(adversary("three_d_fed").collude(meeting(own, honest))).values()))
    plain = np.array(list(changes(adversary("three_d_fed", spread=0.0).collude(meeting(own, honest))).values()))
    assert masked.sum(0) == pytest.approx(plain.sum(0), abs=1e-4)
    noise = masked - plain
    pairs = [np.linalg.norm(noise[i] - noise[j]) for i in range(4) for j in range(i)]
    honest_pairs = [np.linalg.norm(np.subtract(honest[i], honest[j])) for i in range(9) for j in range(i)]
    assert np.sqrt(np.mean(np.square(pairs))) == pytest.approx(np.median(honest_pairs), rel=1e-4)
    long = changes(adversary("three_d_fed").collude(meeting({0: (900, 0, 0)}, honest)))[0]
    assert np.linalg.norm(long) == pytest.approx(np.median(np.linalg.norm(honest, axis=1)), rel=1e-4)


def test_alternating_minimisation_alternates() -> None:
    boosted, plain = (small("fedavg", "alternating_minimisation", boost=b) for b in (5.0, 1.0))
    assert not same(boosted, plain)
    near = small("fedavg", "alternating_minimisation", rho=100.0)
    assert not same(near, boosted)
    assert same(boosted, small("fedavg", "alternating_minimisation", boost=5.0))


def test_even_steps_are_for_the_backdoor_and_odd_ones_near_the_last_change() -> None:
    from dataclasses import dataclass, field

    @dataclass
    class At:
        step: int
        start: dict[str, torch.Tensor] = field(default_factory=lambda: {"w": torch.tensor([2.0, 2.0])})
        before: dict[str, torch.Tensor] = field(default_factory=lambda: {"w": torch.tensor([1.0, 2.0])})

    made = adversary("alternating_minimisation", boost=3.0, rho=0.5)
    grads, params, start = ({"w": torch.tensor(v)} for v in ([1.0, 1.0], [2.0, 5.0], [2.0, 2.0]))
    even = made.correct(At(0), grads, params, start, None)  # type: ignore[arg-type]
    odd = made.correct(At(1), grads, params, start, None)  # type: ignore[arg-type]
    assert even["w"].tolist() == [3.0, 3.0]
    gap = np.array([-1.0, 3.0])  # the change is (0, 3), the last one was (1, 0)
    assert odd["w"].numpy() == pytest.approx(1 + 0.5 * gap / np.linalg.norm(gap))
