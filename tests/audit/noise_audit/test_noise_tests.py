"""The tests of noise: every class of wrong noise is found, correct noise passes as often as is stated."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.noise_audit.noise_samples import NoiseSample, build_rows, standardise
from fedaudit.audit.noise_audit.noise_tests import NoiseTest, run_tests
from fedaudit.fl.ledger import Mechanism
from fedaudit.fl.recording.noise import add_noise, with_origin
from fedaudit.fl.runtime.cipher import NoiseGenerator
from tests.audit.noise_audit.drawn import CLIENTS, FAULTS, ROUNDS, STD, Floats, line_of, normal, samples_of

ALPHA = 0.05


def failed(tests: list[NoiseTest]) -> list[str]:
    return [t.name for t in tests if not t.passed]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FAULTS)
def test_wrong_noise_is_found(name: str) -> None:
    fault, test = FAULTS[name]
    found = run_tests(samples_of(fault(normal(0), np.random.default_rng(1))), alpha=ALPHA)
    assert test in failed(found)


def correct(seed: int) -> list[NoiseTest]:
    """All tests of a right run of two kinds, played twice."""
    plays = []
    for own in (seed, seed + 10_000):
        model = samples_of(normal(own, 8, 4, 160), "local_model")
        plays.append([*model, *samples_of(normal(own + 20_000, 8, 4, 40), "local_prototypes")])
    ours, other = plays
    return run_tests(ours, other, ALPHA)


@pytest.mark.nightly
def test_correct_noise_passes_as_often_as_stated() -> None:
    wrong = [failed(correct(seed)) for seed in range(20)]
    assert sum(map(bool, wrong)) <= 4, wrong  # at 5 % each, more than four of twenty happen once in 400 times


@pytest.mark.nightly
def test_correct_noise_passes_as_often_as_stated_in_many_runs() -> None:
    wrong = [failed(correct(seed)) for seed in range(100, 300)]
    assert sum(map(bool, wrong)) <= 18, [w for w in wrong if w]  # 5 % of 200, and three standard deviations


def test_failure_rates_add_up_to_what_is_asked() -> None:
    found = correct(3)
    assert 0.5 * ALPHA < sum(t.failure_rate for t in found) <= ALPHA + 1e-12
    assert all(t.text and (t.text[0].islower() or t.text[0].isdigit()) for t in found)
    assert all(t.limit == 0 for t in found if t.failure_rate == 0 and t.statistic == 0)


def test_more_noise_than_declared_is_no_fault() -> None:
    z = normal(5)
    z[3:6] *= 3
    z[:, 2] *= 1.5
    z[:, :, :10] *= 2
    assert failed(run_tests(samples_of(z))) == []


LAWS: dict[Mechanism, tuple[float, float]] = {"laplace": (1.5, 1.0), "discrete_laplace": (1.5, 1.4)}


def drawn(mechanism: Mechanism, scale: float, rng: np.random.Generator, numbers: int) -> Floats:
    if mechanism == "laplace":
        return rng.laplace(size=numbers) * scale
    rate = 1 - np.exp(-1 / scale)
    return (rng.geometric(rate, numbers) - rng.geometric(rate, numbers)).astype(np.float64)


def play(mechanism: Mechanism, scale: float, numbers: int = 300) -> list[NoiseSample]:
    rng = np.random.default_rng(8)
    places = [(t, k) for t in range(ROUNDS) for k in range(CLIENTS)]
    return [
        NoiseSample(line_of(t, k, mechanism=mechanism), "values", drawn(mechanism, scale, rng, numbers))
        for t, k in places
    ]


@pytest.mark.parametrize("mechanism", LAWS)
def test_other_laws_pass_at_their_scale_or_above_it(mechanism: Mechanism) -> None:
    for factor in LAWS[mechanism]:
        assert failed(run_tests(play(mechanism, STD * factor), alpha=0.01)) == []
    assert "amount of noise" in failed(run_tests(play(mechanism, 0.8 * STD)))


def test_whole_noise_that_is_used_twice_is_found() -> None:
    samples = play("discrete_laplace", STD)
    samples[50] = NoiseSample(samples[50].line, "values", -samples[7].values)
    assert "noise used twice" in failed(run_tests(samples))


@pytest.mark.parametrize("resolution", [2.0**-20, 2.0**-8, 0.1])
def test_rounded_noise_passes_where_the_ledger_says_so(resolution: float) -> None:
    values = np.round(normal(4) * STD / resolution) * resolution
    places = [(t, k) for t in range(ROUNDS) for k in range(CLIENTS)]
    samples = [NoiseSample(line_of(t, k, resolution=resolution), "values", values[t, k]) for t, k in places]
    assert failed(run_tests(samples)) == []
    unsaid = [NoiseSample(line_of(t, k), "values", values[t, k]) for t, k in places]
    assert failed(run_tests(unsaid)) == []


@pytest.mark.parametrize(("ours", "scale"), [(True, 1e-4), (True, 1e-2), (False, 1e-4)])
def test_small_noise_on_numbers_of_every_size_is_right_noise(ours: bool, scale: float) -> None:
    """Single precision leaves fewer digits of noise on large numbers, and more where a number was 0."""
    cipher, torchs = NoiseGenerator(bytes(32)), torch.Generator().manual_seed(2**31 + 7)
    samples = []
    for t, k in itertools.product(range(6), range(5)):
        line = line_of(t, k, std=scale)
        line = with_origin(line) if ours else line
        arrays = {
            "norm": 8.0 + torch.arange(900) / 8,
            "shares": torch.tensor([0.0, 0.1, 0.2, 0.0]).repeat(50),
            "weight": 0.02 * torch.randn(20_000, generator=torchs),
        }
        for name, clean in arrays.items():
            if ours:
                left = add_noise(clean, "gaussian", scale, cipher)
            else:
                left = clean + scale * torch.randn(clean.shape, generator=torchs)
            before = clean.double().numpy()
            samples.append(NoiseSample(line, name, left.double().numpy() - before, before))
    assert failed(run_tests(samples, alpha=1e-3)) == []
    again = [replace(s, values=first.values) for s, first in zip(samples[3:6], samples[:3], strict=True)]
    assert "noise used twice" in failed(run_tests([*samples[:3], *again], alpha=1e-3))


@pytest.mark.parametrize("place", [np.s_[:], np.s_[:, 4], np.s_[7, 2], np.s_[5, 5, 200:209], np.s_[:, :, :10]])
def test_noise_of_any_part_that_another_seed_leaves_is_found(place: Any) -> None:
    ours, other = normal(1), normal(2)
    assert failed(run_tests(samples_of(ours), samples_of(other))) == []
    other[place] = ours[place]
    assert failed(run_tests(samples_of(ours), samples_of(other))) == ["noise that anybody can compute"]


def test_whole_noise_of_single_numbers_that_another_seed_leaves_is_found() -> None:
    ours, other = (play("discrete_laplace", STD, numbers=1) for _ in range(2))
    assert failed(run_tests(ours, other)) == ["noise that anybody can compute"]
    fresh = drawn("discrete_laplace", STD, np.random.default_rng(9), len(ours))
    other = [replace(s, values=fresh[i : i + 1]) for i, s in enumerate(ours)]
    assert failed(run_tests(ours, other)) == []


def test_noise_of_another_kind_of_message_is_noise_used_twice() -> None:
    one = normal(1)
    together = [*samples_of(one), *samples_of(one[:, :, 200:300].copy(), "local_prototypes")]
    assert failed(run_tests(together)) == ["noise used twice"]


def test_several_messages_of_one_round_are_told_apart() -> None:
    """As the steps of training are: each has noise of its own, on a line of the same place."""
    rng = np.random.default_rng(2)
    line = line_of(0, 0)
    steps = [NoiseSample(line, "w", rng.normal(size=200) * STD) for _ in range(40)]
    assert failed(run_tests(steps)) == []
    assert len({row.key for row in build_rows(steps)}) == 40
    steps[31] = NoiseSample(line, "w", steps[30].values)
    assert "noise used twice" in failed(run_tests(steps))


def test_messages_of_unlike_shapes_are_tested_together() -> None:
    rng = np.random.default_rng(3)
    samples = [
        NoiseSample(line_of(t, k), "features", rng.normal(size=20 * (1 + (t + k) % 4)) * STD)
        for t in range(ROUNDS)
        for k in range(CLIENTS)
    ]
    assert failed(run_tests(samples)) == []
    samples[41] = NoiseSample(samples[41].line, "features", samples[6].values[:20])
    assert "noise used twice" in failed(run_tests(samples))


def test_noise_made_together_is_tested_as_one_part() -> None:
    from dataclasses import replace

    line = replace(line_of(0, 0), aggregated=4)
    rng = np.random.default_rng(4)
    for share, is_right in ((0.5, True), (0.25, False)):
        samples = [NoiseSample(replace(line, round=t), "w", rng.normal(size=300) * STD * share) for t in range(8)]
        assert ("amount of noise" not in failed(run_tests(samples))) == is_right


def test_scores_are_standard_normal_by_a_known_answer() -> None:
    """Quantiles of Laplace noise by hand: F(-b ln 2) = 1/4, and F(0) = 1/2."""
    rng = np.random.default_rng(1)
    z = standardise(np.array([-3 * np.log(2), 3 * np.log(2)]), "laplace", 3.0, 0.0, rng)
    assert z == pytest.approx([-0.6744897501960817, 0.6744897501960817])
    assert standardise(np.array([3.0]), "gaussian", 1.5, 0.0, rng) == pytest.approx([2.0])


def test_nothing_is_said_of_no_noise() -> None:
    assert run_tests([]) == []
    few = run_tests([NoiseSample(line_of(0, 0), "w", np.array([0.3, -1.1]))])
    assert failed(few) == [] and any("not tried" in t.text for t in few)
