"""Certificates: known answers, what they need, and a clip that a malicious client escapes is found out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.robustness.certificate import bound_score, compose, compute_ceiling, minimise, shift_gaussian
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.wire.protection import Sending
from fedaudit.reports.result import AuditResult, Severity
from tests.audit.robustness.test_matrix import TEXT
from tests.audit.tiny import VERDICTS


def rounds(z: float, count: int, **changes: Any) -> list[Release]:
    """Noised models of so many rounds, of a mean over 20 clients with clip 1."""
    line = Release(
        round=0,
        kind="global_model",
        sender="client/*",
        observers=("client", "public"),
        mechanism="gaussian",
        noise_std=z / 20,
        sensitivity=1 / 20,
        clip_norm=1 / 20,
        derived="clip",
    )
    return [replace(line, round=t, **changes) for t in range(count)]


@pytest.mark.parametrize(("k", "z", "known"), [(1, 10, 0.161977), (1, 50, 0.044386), (2, 50, 0.063877)])
def test_everybody_taking_part_gives_the_gaussian_ceiling(k: int, z: float, known: float) -> None:
    assert compute_ceiling(0.03, rounds(z, 20), k) == pytest.approx(known, abs=1e-6)


def test_the_closed_form_is_a_normal_shift() -> None:
    assert shift_gaussian(0.1, 10**0.5 / 20) == pytest.approx(0.130626, abs=1e-6)
    assert (
        shift_gaussian(0.0, 3.0) == 0 and shift_gaussian(1.0, 3.0) == 1 and shift_gaussian(0.2, float("inf")) == 1
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("z", "q", "k", "known"), [(1, 0.1, 1, 0.1031), (1, 0.1, 2, 0.2290), (2, 0.5, 1, 0.2344)]
)
def test_clients_drawn_by_coins_are_mixtures(z: float, q: float, k: int, known: float) -> None:
    assert minimise(0.03, compose(Counter({(1 / z, q): 20}), k)) == pytest.approx(known, abs=1e-4)


def test_more_clients_rounds_or_less_noise_never_lower_a_ceiling() -> None:
    base = compute_ceiling(0.1, rounds(20, 5), 1)
    assert 0.1 < base < compute_ceiling(0.1, rounds(20, 6), 1) and base < compute_ceiling(0.1, rounds(20, 5), 2)
    assert base < compute_ceiling(0.1, rounds(19, 5), 1) and base < compute_ceiling(0.11, rounds(20, 5), 1)


def test_a_score_that_was_never_seen_is_no_probability_of_nothing() -> None:
    assert bound_score([0.0] * 5, 324) == pytest.approx(1 - 0.025 ** (1 / 1620))
    assert bound_score([0.0], 324) > bound_score([0.0] * 5, 324) > 0
    assert bound_score([0.1, 0.3], 1000) == 1.0  # Student's, of two seeds
    assert bound_score([0.5], 10**9) == pytest.approx(0.5, abs=1e-3)


def test_a_draw_that_is_not_by_coins_is_credited_with_nothing() -> None:
    fixed = rounds(20, 5, sampling="fixed_without_replacement", sample_rate=0.1)
    lasting = rounds(20, 5, sampling="poisson", sample_rate=0.1, coin="rounds 0 to 4")
    assert (
        compute_ceiling(0.1, fixed, 1)
        == compute_ceiling(0.1, lasting, 1)
        == compute_ceiling(0.1, rounds(20, 5), 1)
    )


class Unclipped(CentralDP):
    """What must be found: the ledger's clip holds for honest clients alone."""

    def apply(self, sending: Sending) -> None:
        sent = sending.message.copy()
        super().apply(sending)
        if sending.sender.index in MALICIOUS:
            sending.message |= sent


class Bright(Dataset):
    """Images of the second class are brighter: a client that is not clipped can turn the answers round."""

    title = "Bright images"

    def load(self) -> Data:
        rng, y = np.random.default_rng(4), np.arange(500, dtype=np.int64) % 2
        x = (0.2 * rng.random((500, 1, 4, 4)) + 0.8 * y[:, None, None, None]).astype(np.float32)
        return Data(
            train=Arrays(x=x[:120], y=y[:120]), test=Arrays(x=x[120:], y=y[120:]), classes=("dark", "bright")
        )


NOISE = 12.0
MALICIOUS: Sequence[int] = range(60)  # whoever is drawn


def audited(folder: Path, protection: str, noise: float) -> tuple[int, AuditResult]:
    plain = yaml.safe_load(TEXT) | {
        "protections": [{"name": protection, "clip_norm": 1.0, "noise_multiplier": noise}],
        "report": ["json"],
    }
    plain["federation"] |= {"dataset": f"{__name__}:Bright", "clients": 60}
    plain["method"] |= {"weighting": "uniform", "rounds": 12}
    plain["matrix"] = {
        "adversaries": [{"name": "sign_flip", "scale": 1000}],
        "aggregators": [],
        "malicious": [1],
        "seeds": [1, 2, 3, 4, 5],
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(plain))
    found = CliRunner().invoke(app, ["run", str(folder / "c.yaml"), "--out", str(folder / "out")])
    assert found.exit_code in VERDICTS, found.output
    (folder / "terms.yaml").write_text("fail_on: critical\n")
    words = ["check", str(folder / "out"), "--terms", str(folder / "terms.yaml"), "--trust-plugins"]
    gate = CliRunner().invoke(app, words)
    return gate.exit_code, AuditResult.model_validate_json((folder / "out" / "audit.json").read_bytes())


@pytest.mark.nightly
def test_what_an_attack_reaches_stays_below_the_ceiling(tmp_path: Path) -> None:
    _, result = audited(tmp_path, "central_dp", NOISE)
    assert result.robustness is not None
    [found] = result.robustness.certificates
    assert found.above is not None and found.above < 0 and found.clean < found.ceiling < 1
    assert not [f for f in result.findings if f.id.startswith("certificate-") and f.is_demonstrated]


@pytest.mark.nightly
def test_a_clip_that_malicious_clients_escape_is_critical_and_ends_with_one(tmp_path: Path) -> None:
    code, result = audited(tmp_path, f"{__name__}:Unclipped", NOISE)
    [found] = [f for f in result.findings if f.id.startswith("certificate-") and f.is_demonstrated]
    assert found.severity is Severity.CRITICAL and code == 1


@pytest.mark.nightly
def test_a_clip_of_the_clients_stops_no_attacker_and_one_of_the_server_does(tmp_path: Path) -> None:
    clip = {"clip_norm": 0.1, "noise_multiplier": 1e-6}
    plain = yaml.safe_load(TEXT) | {"report": ["json"]}
    plain["matrix"] = {
        "adversaries": [{"name": "sign_flip", "scale": 1000}],
        "protections": [
            {"name": "dp_gaussian", "id": "clients", **clip},
            {"name": "central_dp", "id": "servers", **clip},
        ],
        "malicious": [1],
    }
    plain["method"] |= {"weighting": "uniform", "rounds": 15}
    plain["federation"] |= {"dataset": f"{__name__}:Bright", "clients": 20}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    matrix = AuditResult.model_validate_json((tmp_path / "out" / "audit.json").read_bytes()).robustness
    assert matrix is not None
    moved = {c.setting: abs(c.evidence[0].value) for c in matrix.cells}
    assert moved["fedavg-iid-servers"] == 0
    assert moved["fedavg-iid-clients"] > 0 and moved["fedavg-iid"] > 0
    assert list(matrix.bypassed) == ["fedavg-iid-clients"]
