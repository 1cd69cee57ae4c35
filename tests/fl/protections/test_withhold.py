"""Withheld kinds are gone from what a client sends, and from nothing else."""

from pathlib import Path

import pytest
import torch

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.planning.choice import refuse_impossible
from fedaudit.audit.settings.config import Config
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.protections.withhold import Withhold
from fedaudit.fl.recording.recorder import Recorder, manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire

CARD = Card(title="t", source="", text="", uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_LOSS))
MESSAGE = {Kind.LOCAL_MODEL: {"w": torch.ones(2)}, Kind.LOCAL_LOSS: {"loss": torch.tensor(0.5)}}
LOSS = Withhold(Withhold.Config(kinds=(Kind.LOCAL_LOSS,)))


def test_what_is_withheld_crosses_no_wire_and_is_no_traffic(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    wire = Wire(CARD, Streams(1), [LOSS], recorder)
    sent = wire.uplink(0, MESSAGE, 3, {})
    wire.end_round(0)
    recorder.manifest.close()
    assert (
        sent is not None and sent.keys() == {Kind.LOCAL_MODEL} and sent[Kind.LOCAL_MODEL]["w"].tolist() == [1, 1]
    )
    lines = list(manifest(tmp_path))
    assert [x["kinds"] for x in lines if "message" in x] == [[Kind.LOCAL_MODEL]]
    assert [x["traffic"] for x in lines if "traffic" in x and x["channel"] == Channel.UPLINK] == [
        Kind.LOCAL_MODEL
    ]


def test_what_has_no_sum_can_be_withheld_before_a_secure_sum_and_not_after() -> None:
    Wire(CARD, Streams(1), [LOSS, SecureAggregation()])
    with pytest.raises(UserError, match="of which there is no useful sum"):
        Wire(CARD, Streams(1), [SecureAggregation(), LOSS])


def test_a_simulation_refuses_to_withhold_what_its_server_reads() -> None:
    text = {"federation": {"dataset": "digits"}, "method": "rebafl"}
    config = Config.model_validate(text | {"protections": [{"name": "withhold", "kinds": ["local_prototypes"]}]})
    case = SimulatedCase(config)
    with pytest.raises(UserError, match="reads local_prototypes, which would not be sent"):
        refuse_impossible(case.card, False, [], config.protections, case.protections)
