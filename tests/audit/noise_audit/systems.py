"""Small federations for the audit of noise: six clients of forty digits, four rounds."""

from collections.abc import Mapping
from typing import Any

from fedaudit.audit.accounting.status import BoundCheck
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.settings.config import Config

WRONG = "tests.audit.noise_audit.wrong_systems:"
GAUSSIAN = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 2.0}
CENTRAL = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 2.0}
SGD = {"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10}
BASE: Mapping[str, Any] = {
    "seed": 7,
    "method": {"name": "fedavg", "rounds": 4, "local_epochs": 1, "batch_size": 20, "weighting": "uniform"},
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "partition": "iid",
        "model": "logreg",
        "train_limit": 240,
        "empty_round": "skip",
    },
}


def make_case(**changes: Any) -> SimulatedCase:
    """The base with groups of its config changed key by key."""
    config = {**BASE, **changes}
    for name in ("method", "federation"):
        config[name] = {**BASE[name], **changes.get(name, {})}
    return SimulatedCase(Config.model_validate(config))


def check(observer: str, unit: str = "client", **changes: Any) -> BoundCheck:
    """What the replay says of one bound."""
    return next(c for c in audit_bounds(make_case(**changes)) if (c.observer, c.unit) == (observer, unit))
