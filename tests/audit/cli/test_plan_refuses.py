"""What a run refuses before its first round, its plan refuses too, in the same words."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.plan_lines import write_whole
from fedaudit.audit.cli.plans import plan_audit
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.recording.checkpoint import is_finished
from fedaudit.fl.runtime.errors import UserError

FEDERATION = {"dataset": "digits", "limit": 60, "clients": 3, "model": "logreg"}
NO_SERVER = FEDERATION | {"holdout": {"server": 0}}
CENTRAL = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"adversary": {"name": "false_claims"}}, "send none of them"),
        ({"adversary": {"name": "sign_flip", "clients": 9}}, "among the 3 clients"),
        ({"method": "fedasync", "adversary": {"name": "alie"}}, "come together"),
        ({"aggregator": "fltrust", "federation": NO_SERVER}, "examples of the server's own"),
        ({"method": "fedavg_ft", "federation": NO_SERVER}, "no example of some class"),
        ({"method": "fedmd", "federation": NO_SERVER}, "public examples"),
        ({"method": "fedlora"}, "the model has none"),
        ({"aggregator": {"name": "prototypes", "rule": "krum"}}, "no rule for prototypes"),
        ({"protections": [CENTRAL]}, "more than take"),
        ({"method": "ifca", "protections": [{"name": "secure_aggregation"}]}, "no useful"),
        pytest.param(
            {"device": "cuda"},
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it has one"),
        ),
    ],
)
def test_a_plan_refuses_what_its_run_would(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    name = settings.get("method", "fedavg")
    method = {"name": name, "rounds": 1, "local_epochs": 1}
    config = Config.model_validate({"federation": FEDERATION, "attacks": []} | settings | {"method": method})
    with pytest.raises(UserError, match=words) as planned:
        plan_audit(config)
    with pytest.raises(UserError) as ran:
        execute(RunDir(tmp_path), config, ["simulate"], lambda *_: None, skip_finished=False, workers=0)
    assert planned.value.sentence == ran.value.sentence


def test_a_plan_that_was_kept_is_not_one_of_a_device_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = {"federation": FEDERATION, "method": {"name": "fedavg", "rounds": 1}, "attacks": []}
    config = Config.model_validate(settings | {"device": "cuda"})
    assert plan_audit(config) == plan_audit(config)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        plan_audit(config)


class Normalised(nn.Module):
    """Somebody's own, as the page on models has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.norm(self.first(x.flatten(1))).relu())
        return out


OWN = FEDERATION | {
    "partition": "iid",
    "model": f"{__name__}:Normalised",
    "holdout": {"auxiliary": 0, "reference": 0},
}


@pytest.mark.parametrize(
    ("federation", "method", "words", "key"),
    [
        ({}, {"batch_size": 1}, "a batch of one example", "method.batch_size"),
        ({"limit": 31, "clients": 31}, {}, "client .* trains on a batch of one", "federation.partition"),
    ],
)
def test_a_network_that_needs_two_examples_is_refused_where_a_client_has_a_batch_of_one(
    federation: dict[str, Any], method: dict[str, Any], words: str, key: str, tmp_path: Path
) -> None:
    method = {"name": "fedavg", "rounds": 1, "local_epochs": 1, "batch_size": 20}
    settings = {"federation": OWN | {"limit": 63}, "method": method, "attacks": ["loss_threshold"]}
    config = Config.model_validate(settings)  # 21 examples each
    assert any("loss_threshold" in line for line in write_whole(plan_audit(config)))
    folder = RunDir.create(tmp_path / "run")
    execute(folder, config, ["simulate"], lambda *_: None, skip_finished=False, workers=0)
    assert is_finished(folder.checkpoint)
