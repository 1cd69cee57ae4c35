"""A replay: what counts as near is the replay's own interval, and its verdict is that of its own evidence."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.review.compare_folders import compare_folders
from fedaudit.audit.review.compare_values import compare_values
from fedaudit.audit.review.replay import RunReplay
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from tests.audit.attestation.forger import conclude, each, edit, fedaudit, refit
from tests.audit.attestation.ways_below import WITH_A_VARIANT

OURS: dict[str, Any] = {
    "measure": "auc",
    "value": 0.9,
    "interval": [0.85, 0.95],
    "trials": 100,
    "baselines": [{"name": "chance", "value": 0.5}],
    "note": "1 of 3 at 0.50",
    "image": "iVBORw0KGgoAAAANSUhEUg",
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
        ({"note": "the same in other words"}, ["near"]),
        ({"image": "iVBORw0KGgo"}, ["near"]),
        ({"more": 1}, ["far"]),
    ],
)
def test_how_far_a_value_may_lie_from_that_of_a_replay(change: dict[str, Any], found: list[str]) -> None:
    assert ["far" if p.is_far else "near" for p in compare_values(OURS | change, OURS)] == found


def test_a_number_without_an_interval_may_differ_by_a_share_of_the_replayed_one() -> None:
    for theirs, ours, found in ((1.04, 1.0, [False]), (1.06, 1.0, [True]), (0.0, 0.0, []), (1e-3, 0.0, [True])):
        assert [p.is_far for p in compare_values(theirs, ours)] == found
    assert not list(compare_values(float("nan"), float("nan")))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    (folder / "c.yaml").write_text(WITH_A_VARIANT)
    fedaudit("run", folder / "c.yaml", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def test_a_replay_trains_again_and_attacks_options_too(run: Path) -> None:
    """Page 1 recommends an option by what its own attacks measured."""
    done = fedaudit("verify", run, "--replay")
    assert "made again here: training, 2 attacks, the accounts, 1 option" in done.stdout, done.output
    assert "byte for byte but for times" in done.stdout and "accuracies" not in done.stdout
    variant = run / "variants" / "noisy"
    edit(variant / "evidence/00-label_counts_from_update.json", each({"value": 0.0, "interval": [0.0, 0.05]}))
    refit(variant, "attack")
    conclude(variant)
    conclude(run)
    done = fedaudit("verify", run, "--replay")
    assert done.exit_code == 2 and "is not what the run gives here" in done.stderr, done.output


@pytest.fixture(scope="module")
def again(original: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Made again on a machine with other digits: every message of the owner's is a little away."""
    drifted = tmp_path_factory.mktemp("drifted") / "run"
    shutil.copytree(original, drifted)
    drift(drifted, 1e-3)
    run = RunDir(drifted)
    place = tmp_path_factory.mktemp("again") / "run"
    RunReplay(run.path, place, run.load_config()).make(lambda *_: None)
    return RunDir(place)


def stretch(arrays: dict[str, Any], share: float) -> dict[str, Any]:
    """Every number larger by a share; whole ones stay."""
    return {k: np.asarray(v * (1 + share), v.dtype) if v.dtype.kind == "f" else v for k, v in arrays.items()}


def drift(folder: Path, share: float) -> None:
    """Every number of every message larger by a share, with digests that fit."""
    for part in (folder, folder / "variants" / "noisy"):
        for path in (part / "artifacts").rglob("*.safetensors"):
            path.write_bytes(save(stretch(load(path.read_bytes()), share)))
        manifest = part / "artifacts" / "manifest.jsonl"
        lines = [json.loads(line) for line in manifest.read_text().splitlines()]
        for line in (li for li in lines if "message" in li):
            line["sha256"] = sha256(part / f"artifacts/{line['message']}.safetensors")
        manifest.write_text("".join(json.dumps(li, separators=(",", ":")) + "\n" for li in lines))
        refit(part, "simulate")


def test_on_other_digits_messages_are_near_and_attacks_run_on_those_of_the_folder(
    original: Path, again: RunDir, run: Path
) -> None:
    drift(run, 1e-3)
    name = "artifacts/r00000/client-0.uplink.safetensors"
    assert (again.path / name).read_bytes() == (run / name).read_bytes() != (original / name).read_bytes()


@pytest.mark.parametrize("share", [1e-3, 0.9])
def test_messages_that_are_far_away_are_no_drift(share: float, original: Path, run: Path) -> None:
    drift(run, share)
    if share < 0.5:
        found = compare_folders(run, original, trained=True)
        assert not found.has_same_digits and found.moved == found.messages
        assert found.reach == pytest.approx(share, rel=0.1)
    else:
        with pytest.raises(UserError, match="of its length away"):
            compare_folders(run, original, trained=True)


def test_one_message_that_is_a_little_away_among_equal_ones_was_edited(original: Path, run: Path) -> None:
    path = run / "artifacts/r00000/client-0.uplink.safetensors"
    path.write_bytes(save(stretch(load(path.read_bytes()), 1e-3)))
    with pytest.raises(UserError, match=r"client-0\.uplink.* is not what the run gives here"):
        compare_folders(run, original)


def test_evidence_that_is_near_passes_by_the_verdict_of_the_replay_and_is_not_called_equal(
    original: Path, run: Path
) -> None:
    file = "evidence/00-label_counts_from_update.json"
    edit(run / file, each(lambda e: {"value": e["value"] * 0.9999999}))
    replayed = RunReplay(run, original, RunDir(run).load_config()).conclude(load_policy("default"))
    assert "The folder is not equal to it in " in replayed.lines[0] and "byte for byte" not in replayed.lines[0]
