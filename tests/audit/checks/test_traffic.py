"""Bytes that no code could do with are a finding; those of a code are none; what a server keeps is declared."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks.traffic import Traffic, count_least_bytes
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedprox import FedProx
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.training.local import Trained
from fedaudit.reports.result import Severity
from tests.audit.checks.test_raw_samples import audited


class ModelInABit(FedAvg):
    """A whole model, said to take one byte."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[Kind.LOCAL_MODEL] = Coded(reply.message[Kind.LOCAL_MODEL], 1)
        return reply


class HalfOfTheBytes(FedProx):
    """Signs of all numbers, said to take half a bit each."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        signs = {k: torch.where(v < 0, -1.0, 1.0) for k, v in reply.message[Kind.LOCAL_MODEL].items()}
        reply.message[Kind.LOCAL_MODEL] = Coded(signs, sum(v.numel() for v in signs.values()) // 16)
        return reply


def check(folder: Path, **changes: object) -> Checked:
    like = audited("fedavg")[1].model_dump(mode="json")
    made, run = Config.model_validate({**like, **changes}), RunDir.create(folder / "run")
    execute(run, made, ("simulate",), lambda *_: None, skip_finished=True)
    return Traffic().check(open_case(run, made), None)


@pytest.mark.parametrize("name", ["ModelInABit", "HalfOfTheBytes"])
def test_fewer_bytes_than_the_numbers_need_are_a_finding(name: str, tmp_path: Path) -> None:
    like = audited("fedavg")[1].model_dump(mode="json")["method"]
    checked = check(tmp_path, method={**like, "name": f"{__name__}:{name}"})
    [one] = checked.results
    assert one.artifacts == [Kind.LOCAL_MODEL] and checked.declared == []
    assert one.severity is Severity.LOW and "however they are coded" in one.summary


@pytest.mark.parametrize(
    "protection",
    [
        {"name": "quantise", "bits": 1},
        {"name": "quantise", "bits": 8},
        {"name": "top_k", "share": 0.01, "values": "ternary"},
    ],
)
def test_codes_that_can_be_read_back_are_none(protection: dict[str, object], tmp_path: Path) -> None:
    assert check(tmp_path, protections=[protection]) == Checked(results=[], declared=[])


def test_what_a_server_need_not_send_again_is_declared() -> None:
    checked = Traffic().check(open_case(*audited("stc")), None)
    assert checked.results == [] and len(checked.declared) == 1 and "global_model" in checked.declared[0]


def test_the_least_bytes_by_hand() -> None:
    assert count_least_bytes({"w": np.zeros(99)}) == 0
    assert count_least_bytes({"w": np.array([0.0, 2.0] * 8)}) == 1  # eight times one number: a bit each
    assert count_least_bytes({"w": np.array([1.0, -1.0] * 8, np.float32)}) == 2
    assert count_least_bytes({"w": np.arange(1, 17, dtype=np.float32)}) == 8  # sixteen numbers, four bits each
