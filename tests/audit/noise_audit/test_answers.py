"""Answers at random: labels that are flipped in training are stated as if they were whole records."""

from dataclasses import dataclass

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Protection, Sending


class FlippedLabels(Protection):
    """A line of randomised response for each model that labels flipped at random went into."""

    title = "Labels answered at random"
    source = "a test"
    kinds = (Kind.LOCAL_MODEL,)

    @dataclass(frozen=True, kw_only=True)
    class Config:
        epsilon: float = 4.0

    def describe(self) -> str:
        return "each label answered at random once"

    def apply(self, sending: Sending) -> None:
        sending.protected.add(Kind.LOCAL_MODEL)
        line = Release(
            round=sending.round,
            kind=Kind.LOCAL_MODEL,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="randomized_response",
            noise_std=1 / self.config.epsilon,
            sensitivity=1.0,
            unit="record",
        )
        sending.releases.append(line)


def test_labels_that_are_answered_at_random_are_declared_for_what_they_are() -> None:
    """That no neighbouring play moved anything that gets noise was said, which is false of a model of labels."""
    settings = {
        "federation": {
            "dataset": "digits",
            "clients": 3,
            "partition": "iid",
            "availability": "full",
            "model": "logreg",
            "limit": [60, 20],
        },
        "method": {"name": "fedavg", "rounds": 1, "weighting": "uniform"},
        "protections": [{"name": "tests.audit.noise_audit.test_answers:FlippedLabels"}],
    }
    found = audit_bounds(SimulatedCase(validate(SimulatedConfig, settings, "test")))
    assert {c.status.value for c in found} == {"declared"}
    assert all("Answers at random are sent as local_model" in c.reason for c in found)
    assert all("nor whether a record or client is more than its answers" in c.reason for c in found)
