"""A replay: what counts as near is the replay's own interval, and its verdict is that of its own evidence."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.replay import Again, compare_values
from tests.audit.attestation.forger import (
    MEMBERSHIP,
    REPLAY,
    conclude,
    each,
    edit,
    fedaudit,
    make_run,
    refit,
    review,
)


def image(level: int, size: tuple[int, int] = (2, 2)) -> str:
    content = io.BytesIO()
    Image.new("L", size, level).save(content, "PNG")
    return base64.b64encode(content.getvalue()).decode()


OURS: dict[str, Any] = {
    "measure": "auc",
    "value": 0.9,
    "interval": [0.85, 0.95],
    "trials": 100,
    "baselines": [{"name": "chance", "value": 0.5}],
    "note": "1 of 3 at 0.50",
    "image": image(100),
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"value": 0.81}, ["near"]),
        ({"value": 0.79}, ["far"]),
        ({"value": 0.4, "interval": [0.0, 1.0]}, ["far", "far", "near"]),  # the owner's interval allows nothing
        ({"interval": [0.8, 0.99]}, ["near", "near"]),
        ({"interval": None}, ["far"]),
        ({"trials": 101}, ["far"]),
        ({"trials": 100.0}, []),
        ({"value": True}, ["far"]),
        ({"baselines": [{"name": "chance", "value": 0.75}]}, ["far"]),
        ({"baselines": [{"name": "chance", "value": 0.55}]}, ["near"]),
        ({"baselines": []}, ["far"]),
        ({"measure": "tpr"}, ["far"]),
        ({"note": "1 of 3 at 0.52"}, ["near"]),
        ({"note": "2 of 3 at 0.50"}, ["far"]),
        ({"note": "1 of 4 at 0.50"}, ["far"]),
        ({"image": image(105)}, ["near"]),
        ({"image": image(200)}, ["far"]),
        ({"image": image(100, (2, 3))}, ["far"]),
        ({"image": "iVBORw0KGgo"}, ["far"]),
        ({"more": 1}, ["far"]),
    ],
)
def test_how_far_a_value_may_lie_from_that_of_a_replay(change: dict[str, Any], found: list[str]) -> None:
    assert ["far" if p.far else "near" for p in compare_values(OURS | change, OURS)] == found


def test_a_number_without_an_interval_may_differ_by_a_share_of_the_replayed_one() -> None:
    for theirs, ours, found in ((1.04, 1.0, [False]), (1.06, 1.0, [True]), (0.0, 0.0, []), (1e-3, 0.0, [True])):
        assert [p.far for p in compare_values(theirs, ours)] == found
    assert not list(compare_values(float("nan"), float("nan")))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("replay"))


WITH_A_VARIANT = """
federation: {dataset: digits, train_limit: 160, test_limit: 40, clients: 4, availability: full, model: logreg}
method: {name: fedavg, rounds: 1, local_epochs: 1}
workers: 0
attacks: [label_counts_from_update]
noise_audit: {play: false}
report: [json]
variants: [{name: noisy, protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 0.01}]}]
"""


def test_a_replay_runs_the_attacks_of_the_variants_too(tmp_path: Path) -> None:
    """Page 1 recommends an option by what its own attacks measured."""
    (tmp_path / "c.yaml").write_text(WITH_A_VARIANT)
    run = tmp_path / "run"
    fedaudit("run", tmp_path / "c.yaml", "--out", run)
    done = fedaudit("verify", run, "--replay")
    assert "2 attacks and the accounts, of 1 variant too, ran again here" in done.stdout, done.output
    variant = run / "variants" / "noisy"
    edit(variant / "evidence/00-label_counts_from_update.json", each({"value": 0.0, "interval": [0.0, 0.05]}))
    refit(variant, "attack")
    conclude(variant)
    conclude(run)
    done = fedaudit("verify", run, "--replay")
    assert done.exit_code == 2 and "is not what its attack gives here" in done.stderr, done.output


@pytest.mark.nightly
def test_evidence_that_is_near_passes_by_the_verdict_of_the_replay_and_is_not_called_equal(
    original: Path,
) -> None:
    done = review(REPLAY, original, original)
    assert done.exit_code in (1, 3) and "byte for byte but for times" in done.stdout, done.output
    edit(original / MEMBERSHIP, each(lambda e: {"value": e["value"] * 0.9999999}))
    refit(original, "attack")
    conclude(original)
    near = review(REPLAY, original, original)
    assert near.exit_code == done.exit_code, near.output
    assert "is not equal to it in " in near.stdout and "byte for byte" not in near.stdout


def test_a_replay_writes_nothing_into_the_folder(tmp_path: Path) -> None:
    again = Again(RunDir.create(tmp_path / "run"), tmp_path / "again")
    again.write_json(again.evidence / "00-x.json", {})
    assert (tmp_path / "again/00-x.json").is_file() and again.read_json(again.evidence / "00-x.json") == {}
    with pytest.raises(RuntimeError, match="must not write"):
        again.write(again.audit, b"")
