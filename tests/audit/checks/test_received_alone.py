"""Messages that are made of what was received alone: seen by playing their senders with other examples."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks._check import IndependentKind
from fedaudit.audit.checks.received_alone import ReceivedAlone, list_other_examples
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.phases.plan import execute
from fedaudit.audit.phases.variants import Variants
from fedaudit.audit.settings.config import Config
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import State as QuestionState
from fedaudit.reports.result import AuditResult
from tests.audit.tiny import SMALL

HERE = "tests.audit.checks.test_received_alone"
TEXT: dict[str, Any] = {
    "federation": SMALL,
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1, "weighting": "uniform"},
    "workers": 0,
    "record": {"rounds": "all"},
    "replay": {"sizes": [1, 5], "clients": 2, "groups": 10},
    "noise_audit": {"play": False},
    "report": ["json"],
}


class Echo(FedAvg):
    """Sends back what it received."""

    def alter(self, client: Client, model: State) -> State:
        return model

    def train(self, client: Client) -> Reply:
        message = {Kind.LOCAL_MODEL: self.alter(client, {k: v.cpu().clone() for k, v in client.start.items()})}
        if self.config.weighting == "samples":
            message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(len(client.y))}
        return Reply(message=message, examples=len(client.y))


class Constant(Echo):
    """Sends the same numbers, whatever it received."""

    def alter(self, client: Client, model: State) -> State:
        return {k: torch.full_like(v, 0.01 * client.index) for k, v in model.items()}


class Majority(Echo):
    """Says in a number which class it has more of."""

    def alter(self, client: Client, model: State) -> State:
        model["head.bias"][-1] = 0.5 + float(client.y.float().mean() > 0.6)
        return model


class OneClass(Echo):
    """Says whether all of its examples, three or more, are of one class."""

    def alter(self, client: Client, model: State) -> State:
        model["head.bias"][-1] = float(len(client.y) > 2 and len(client.y.unique()) == 1)
        return model


class OneClient(Echo):
    """Client 2 writes four numbers of its first image into what it sends."""

    def alter(self, client: Client, model: State) -> State:
        if client.index == 2:
            model["head.weight"].view(-1)[:4] = client.x[0].flatten().cpu()[:4]
        return model


class Later(Echo):
    """Trains in round 0, and echoes afterwards."""

    def train(self, client: Client) -> Reply:
        return FedAvg.train(self, client) if client.round == 0 else super().train(client)


class Remembers(Echo):
    """Writes the first pixel of each client's first image, and makes it once for every client."""

    pixels: ClassVar[dict[int, float]] = {}

    def alter(self, client: Client, model: State) -> State:
        model["head.bias"][-1] = self.pixels.setdefault(client.index, float(client.x[0].flatten()[0]))
        return model


class Beats(Echo):
    """Says that it is at work, in so many numbers."""

    card = replace(FedAvg.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def train(self, client: Client) -> Reply:
        reply = super().train(client)
        reply.message[Kind.HEARTBEAT] = {"beat": self.beat(client)}
        return reply

    def beat(self, client: Client) -> Tensor:
        return torch.tensor(float(client.round))


class BeatsWithAnImage(Beats):
    """The numbers are an image of the client's."""

    def beat(self, client: Client) -> Tensor:
        return client.x[0].flatten().cpu()


def simulate(folder: Path, method: str, **settings: Any) -> Case:
    config = Config.model_validate(TEXT | {"method": {**TEXT["method"], "name": method, **settings}})
    run = RunDir.create(folder)
    execute(run, config, ["simulate"], lambda *_: None, skip_finished=False)
    return open_case(run, config)


def inspect(folder: Path, method: str, **settings: Any) -> list[IndependentKind]:
    case = simulate(folder, method, **settings)
    return list(ReceivedAlone().check(case, Lab.from_case(case)).independent)


@pytest.mark.parametrize("method", ["Echo", "Constant"])
def test_what_does_not_depend_on_examples_is_named_with_its_rounds(tmp_path: Path, method: str) -> None:
    found = inspect(tmp_path / "run", f"{HERE}:{method}")
    assert found == [IndependentKind(kind="local_model", rounds=(0, 1))]


def test_a_client_is_played_with_a_few_with_anothers_and_with_each_class(tmp_path: Path) -> None:
    lab = Lab.from_case(simulate(tmp_path / "run", f"{HERE}:Echo"))
    assert lab is not None
    few, anothers, *classes = list_other_examples(lab, 0)
    labels = lab.holdings.data.train.y
    assert len(few) == 2 and any(np.array_equal(anothers, lab.owned[k]) for k in (1, 2, 3))
    assert [np.unique(labels[rows]).tolist() for rows in classes] == [[0], [1]]
    assert not {*np.concatenate([few, anothers, *classes])} & {*lab.owned[0]}


def test_the_rest_of_a_message_may_depend_on_them(tmp_path: Path) -> None:
    found = inspect(tmp_path / "run", f"{HERE}:Echo", weighting="samples")
    assert [k.kind for k in found] == ["local_model"]


@pytest.mark.parametrize(
    "method", ["fedavg", *(f"{HERE}:{n}" for n in ("Majority", "OneClass", "OneClient", "Later", "Remembers"))]
)
def test_a_message_that_depends_on_examples_anywhere_is_not_named(tmp_path: Path, method: str) -> None:
    assert inspect(tmp_path / "run", method) == []


def audit(folder: Path, method: str) -> AuditResult:
    config = Config.model_validate(
        TEXT | {"method": TEXT["method"] | {"name": f"{HERE}:{method}"}, "attacks": ["loss_threshold"]}
    )
    run = RunDir.create(folder / "run")
    phases = ["simulate", "attack", "account", "score", "report"]
    Variants(run, config).execute_all(phases, lambda *_: None)
    return AuditResult.model_validate_json(run.audit.read_bytes())


def test_what_a_client_sends_as_a_sign_of_life_is_asked_about_as_all_else(tmp_path: Path) -> None:
    """A kind's row says that it tells of nobody; only the client's code knows."""
    told, kept = (audit(tmp_path / m, m) for m in ("BeatsWithAnImage", "Beats"))
    of = "exfiltration.server.heartbeat"
    (hidden,), (empty,) = ([q for q in result.questions if q.id == of] for result in (told, kept))
    assert hidden.required and not hidden.is_answered and empty.state is QuestionState.BOUNDED
    assert told.decision is not None and told.decision.word is not Word.READY
    assert kept.decision is not None and kept.decision.word is Word.READY


def test_an_audit_of_echoes_says_so_once_and_answers_what_is_asked(tmp_path: Path) -> None:
    result = audit(tmp_path, "Echo")
    assert {q.state for q in result.questions if q.required} == {QuestionState.BOUNDED}
    told = {q.why for q in result.questions if q.kind == "local_model" and q.aim != "attribute"}
    assert len(told) == 1 and "it is made of what they received alone" in told.pop()
    assert result.decision is not None and result.decision.word is Word.READY
