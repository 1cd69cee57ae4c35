"""The noise of a recorded run: found to the bit, and missed where somebody took half of it away."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.canaries.recorded_uploads import checks, recorded_uploads, residuals
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.main import app
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.phases.account import noise_audits
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from tests.audit.tiny import TEXT

NOISED = (
    TEXT.replace("rounds: 2", "rounds: 3, local_epochs: 1, batch_size: 8, lr: 0.1")
    + "protections: [{name: dp_gaussian, clip_norm: 0.5, noise_multiplier: 2.0}]\n"
    "record: {rounds: all}\nworkers: 0\ndp_audit: {canaries: 40, rounds: 2}\n"
)
STD = 1.0  # clip times multiplier

Recorded = tuple[SimulatedCase, list[Artifact], RunDir]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return simulated(NOISED, tmp_path_factory.mktemp("noised"))


def simulated(text: str, folder: Path) -> Recorded:
    (folder / "config.yaml").write_text(text)
    command = ["simulate", str(folder / "config.yaml"), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output + repr(done.exception)
    found = RunDir.open(folder / "out")
    config = found.load_config(trust_plugins=True)
    return SimulatedCase(config), recorded_uploads(found), found


def test_clients_trained_again_send_what_was_recorded_to_the_bit(run: Recorded) -> None:
    world, uploads, _ = run
    found = residuals(Lab.of(world), uploads, Kind.LOCAL_MODEL)
    assert found is not None and found.gap == 0.0
    assert len(found.residuals) == 12  # four clients, three rounds
    assert found.residuals.std() == pytest.approx(STD, rel=0.06)


def test_the_recorded_noise_passes_and_half_of_it_does_not(run: Recorded) -> None:
    world, uploads, folder = run
    said = next(r for r in read(folder.ledger) if r.mechanism == "gaussian")
    found = residuals(Lab.of(world), uploads, Kind.LOCAL_MODEL)
    assert found is not None
    good = checks(found, said, np.random.default_rng(0), 0.01)
    assert len(good) == 3 and all(c.passed and "recorded" in c.name for c in good)
    half = found._replace(residuals=found.residuals / 2, gap=1.0)
    (amount,) = checks(half, said, np.random.default_rng(0), 0.01)  # no exact replay: only this
    assert not amount.passed and amount.statistic == pytest.approx(0.5, rel=0.06)


def test_a_record_with_less_noise_than_the_ledger_refutes_the_claim(run: Recorded) -> None:
    world, uploads, folder = run
    found = residuals(Lab.of(world), uploads, Kind.LOCAL_MODEL)
    assert found is not None
    tampered = [_closer(a, uploads) if a.kind == Kind.LOCAL_MODEL else a for a in uploads]
    releases, settings = read(folder.ledger), world.config.dp_audit
    (good,) = noise_audits(world, releases, settings, world.config.delta, uploads)
    (bad,) = noise_audits(world, releases, settings, world.config.delta, tampered)
    assert not good.refuted and bad.refuted
    assert [c.name for c in bad.checks if not c.passed] == ["amount of noise, recorded"]


def _closer(upload: Artifact, uploads: list[Artifact]) -> Artifact:
    """The upload moved half-way to the model it started from."""
    (start,) = [a for a in uploads if a.kind == Kind.GLOBAL_MODEL and a.round == upload.round]
    payload = {k: (v + start.payload[k]) / 2 for k, v in upload.payload.items()}  # type: ignore[operator]
    return dataclasses.replace(upload, payload=payload)


def test_clients_that_remember_are_replayed_in_their_first_round_only(tmp_path: Path) -> None:
    text = NOISED.replace("name: fedavg", "name: feddyn")
    world, uploads, _ = simulated(text, tmp_path)
    found = residuals(Lab.of(world), uploads, Kind.LOCAL_MODEL)
    assert found is None or len(found.residuals) == 4


def test_kinds_that_are_no_models_are_not_replayed(run: Recorded) -> None:
    world, uploads, _ = run
    assert residuals(Lab.of(world), uploads, Kind.LOCAL_PROTOTYPES) is None
    assert residuals(Lab.of(world), [], Kind.LOCAL_MODEL) is None
