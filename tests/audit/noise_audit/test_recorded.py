"""The noise of recorded means and uploads: by hand, and left out where the record does not tell it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.noise_audit.noise_samples import sample_means
from fedaudit.audit.noise_audit.noise_tests import run_recorded_tests, run_tests
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.top_k import TopK

CLIENTS, ROUNDS, CLIP, EXPECTED, STD = 3, 12, 1.0, 4, 0.5
RNG = np.random.default_rng(1)
NOISE = RNG.normal(size=(ROUNDS, 200)) * STD


def record(std: float = STD) -> tuple[list[Artifact], list[Release]]:
    """A run whose server divides by four, of whom three answer, and adds noise of deviation `std`."""
    found, lines, rng = [], list[Release](), np.random.default_rng(2)
    model = np.zeros(200, np.float32)

    def note(kind: Kind, channel: Channel, sender: Party, round: int, weights: np.ndarray) -> None:  # type: ignore[type-arg]
        found.append(
            Artifact(
                id=f"{kind}-{sender}-{round}",
                kind=kind,
                channel=channel,
                round=round,
                sender=sender,
                seen_by=("server",),
                payload={"w": weights.copy(), "steps": np.array(round)},
            )
        )

    for t in range(ROUNDS):
        note(Kind.GLOBAL_MODEL, Channel.DOWNLINK, SERVER, t, model)
        total = np.zeros(200)
        for k in range(CLIENTS):
            change = rng.normal(size=200).astype(np.float32) * np.float32(0.05)
            note(Kind.LOCAL_MODEL, Channel.UPLINK, Party.client(k), t, model + change)
            total += change
            clear = Release(
                round=t, kind="local_model", sender=f"client/{k}", observers=("server",), mechanism="none"
            )
            lines.append(replace(clear, source="central_dp", clip_norm=CLIP))
        noised = replace(clear, kind="global_model", sender="client/*", mechanism="gaussian", noise_std=STD)
        lines.append(replace(noised, source="central_dp", sensitivity=CLIP / EXPECTED, clip_norm=CLIP / EXPECTED))
        model = (model + total / EXPECTED + NOISE[t] * (std / STD)).astype(np.float32)
    note(Kind.GLOBAL_MODEL, Channel.RELEASE, SERVER, ROUNDS, model)
    return found, lines


def test_what_is_left_of_a_mean_is_its_noise() -> None:
    found = sample_means(*record())
    assert [s.line.round for s in found] == list(range(ROUNDS)) and {s.array for s in found} == {"w"}
    assert np.abs(np.stack([s.values for s in found]) - NOISE).max() < 1e-5
    assert all(t.passed for t in run_tests(found))


def test_recorded_noise_that_is_too_small_is_found() -> None:
    failed = {t.name for t in run_tests(sample_means(*record(0.4))) if not t.passed}
    assert "amount of noise" in failed


def test_rounds_that_were_not_recorded_whole_are_left_out() -> None:
    artifacts, lines = record()
    some = [a for a in artifacts if not (a.round == 3 and a.sender == Party.client(1))]
    assert {s.line.round for s in sample_means(some, lines)} == {*range(ROUNDS)} - {3}
    assert sample_means([], lines) == []


def test_noise_that_drowns_in_rounding_is_left_out() -> None:
    artifacts, lines = record()
    faint = [replace(r, noise_std=1e-9) if r.mechanism == "gaussian" else r for r in lines]
    assert sample_means(artifacts, faint) == []


# Uploads ----------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, int, int], np.ndarray]  # type: ignore[type-arg]


def fresh(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return rng.normal(size=400)


def reused(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(k).normal(size=400)


def shared(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(t).normal(size=400)


def opposite(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return shared(rng, t, k) * (1 if k % 2 else -1)


def spares_an_array(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.append(rng.normal(size=300), np.zeros(100))


def weak_in_a_round(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return rng.normal(size=400) * (0.7 if t == 2 else 1.0)


def laplace(rng: np.random.Generator, t: int, k: int) -> np.ndarray:  # type: ignore[type-arg]
    return rng.laplace(size=400)


def upload(
    draw: Draw, seed: int = 0, factor: float = 1.0, kind: Kind = Kind.LOCAL_MODEL, **changes: Any
) -> tuple[list[Artifact], list[Release]]:
    """Four clients send changes as long as their clip of 1 under noise of deviation 1."""
    rng, artifacts, lines = np.random.default_rng(seed), list[Artifact](), list[Release]()
    for t in range(4):
        model = rng.normal(size=400) * 5
        down = Artifact(
            id=f"down-{t}",
            kind=Kind.GLOBAL_MODEL,
            channel=Channel.DOWNLINK,
            round=t,
            sender=SERVER,
            seen_by=("client",),
            payload={"a": model[:300], "b": model[300:]},
        )
        artifacts.append(down)
        for k in range(4):
            trained = rng.normal(size=400)
            sent = trained / np.linalg.norm(trained) + factor * draw(rng, t, k)
            sent = sent + model if kind is Kind.LOCAL_MODEL else sent
            up = {"channel": Channel.UPLINK, "kind": kind, "sender": Party.client(k), "seen_by": ("server",)}
            artifacts.append(
                replace(down, id=f"up-{t}-{k}", payload={"a": sent[:300], "b": sent[300:]}, **up)  # type: ignore[arg-type]
            )
            line = Release(round=t, kind=kind, sender=f"client/{k}", observers=("server",), mechanism="gaussian")
            clipped = {"noise_std": 1.0, "sensitivity": 1.0, "clip_norm": 1.0, "clip_of": "update"}
            lines.append(replace(line, **{**clipped, **changes}))  # type: ignore[arg-type]
    return artifacts, lines


def failed(draw: Draw, **settings: Any) -> set[str]:
    tests, kinds = run_recorded_tests(*upload(draw, **settings), (), 0.01)
    assert tests and kinds
    return {t.name for t in tests if not t.passed}


@pytest.mark.parametrize("kind", [Kind.LOCAL_MODEL, Kind.MODEL_DELTA])
def test_noise_of_uploads_as_stated_passes_whatever_was_trained(kind: Kind) -> None:
    assert not any(failed(fresh, seed=seed, kind=kind) for seed in range(20))
    assert not failed(laplace, mechanism="laplace", clip_norm=20.0, kind=kind)
    assert not failed(fresh, factor=3.0, kind=kind)  # more noise than stated is no fault


@pytest.mark.parametrize("draw", [reused, shared, opposite])
def test_uploads_that_share_noise_are_found(draw: Draw) -> None:
    assert failed(draw) == {"independence of uploads"}


@pytest.mark.parametrize("draw", [spares_an_array, weak_in_a_round])
def test_a_part_of_the_uploads_that_is_too_short_for_its_noise_is_found(draw: Draw) -> None:
    assert "amount of noise in uploads" in failed(draw)


def test_too_little_laplace_noise_is_found() -> None:
    assert failed(laplace, factor=0.6, mechanism="laplace") == {"amount of noise in uploads"}


def test_uploads_that_another_protection_changed_afterwards_are_left_out() -> None:
    artifacts, lines = upload(fresh, factor=0.1)
    noise, sparse = DPGaussian(DPGaussian.Config()), TopK(TopK.Config(kinds=(Kind.LOCAL_MODEL,)))
    assert run_recorded_tests(artifacts, lines, (noise,), 0.01)[1] == {"local_model"}
    assert run_recorded_tests(artifacts, lines, (noise, sparse), 0.01) == ([], set())


@pytest.mark.parametrize("change", [{"clip_norm": None}, {"clip_of": "record"}, {"mechanism": "none"}])
def test_uploads_whose_clip_and_law_the_ledger_does_not_state_are_left_out(change: dict[str, Any]) -> None:
    assert run_recorded_tests(*upload(fresh, **change), (), 0.01) == ([], set())
