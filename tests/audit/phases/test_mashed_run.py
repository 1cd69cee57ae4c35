"""An audit of FedMix reads the means that were sent before the rounds, or says that nobody kept them."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.controls.lab import EACH
from fedaudit.audit.phases import attack
from fedaudit.fl.runtime.errors import UserError
from tests.audit.simulated import simulated


def found(folder: Path, method: str = "fedmix", **settings: Any) -> dict[str, Any]:
    """What the attack leaves after two rounds; everybody takes part in both."""
    run, config = simulated(
        {
            "federation": {
                "dataset": "digits",
                "clients": 4,
                "partition": "iid",
                "availability": "full",
                "model": {"name": "mlp", "hidden": [8]},
                "holdout": {"reference": 0.4},
            },
            "method": {"name": method, "rounds": 2, "local_epochs": 1},
            "workers": 0,
            "attacks": ["mashed_membership"],
            **settings,
        },
        folder,
    )
    attack.run(run, config, lambda *_: None)
    [file] = run.evidence.glob("[0-9]*.json")
    evidence: dict[str, Any] = json.loads(file.read_text())
    return evidence


def test_means_sent_before_the_rounds_are_kept_and_read_by_default(tmp_path: Path) -> None:
    result = found(tmp_path)
    assert result["status"] == "ran"
    real = [e for e in result["evidence"] if e["measure"] == "auc" and e["control"] == "none"]
    clients = 4 * len(range(10))  # a group of candidates for every client and class
    assert [e["condition"]["n"] for e in real] == [5] and real[0]["trials"] > 2 * clients
    planted = [e for e in result["evidence"] if e["control"] == "positive"]
    assert planted and planted[0]["value"] > 0.99
    people = result["people"][0]
    assert people["planted"] == {str(k): {"hits": EACH, "trials": EACH} for k in range(4)}


def test_people_are_planted_through_the_runs_protections(tmp_path: Path) -> None:
    noise = {"name": "dp_gaussian", "kinds": ["mashed_batch"], "clip_norm": 1.0, "noise_multiplier": 50.0}
    people = found(tmp_path, protections=[noise])["people"][0]
    assert sum(s["hits"] for s in people["planted"].values()) <= 6
    assert sum(s["trials"] for s in people["planted"].values()) == 4 * EACH


def test_whoever_shares_examples_as_they_are_is_flagged(tmp_path: Path) -> None:
    people = found(tmp_path, "data_sharing")["people"][0]
    assert people["planted"] == {str(k): {"hits": EACH, "trials": EACH} for k in range(4)}
    assert sum(map(len, people["hit"].values())) > 10


@pytest.mark.parametrize(
    ("method", "reason"),
    [("fedmix", "no mashed_batch was recorded: FedMix may send it in rounds that the setting record leaves out")],
)
def test_what_was_not_kept_is_told_from_what_was_not_sent(method: str, reason: str, tmp_path: Path) -> None:
    result = found(tmp_path, method, record=[1])
    assert result["status"] == "not_applicable" and result["reason"] == reason


def test_an_attack_on_what_the_method_never_sends_is_refused_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can never apply: FedAvg sends no mashed_batch"):
        found(tmp_path, "fedavg")
