"""Constant messages: seen by playing their senders with other people, often enough; else it stays open."""

import re
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
from fedaudit.audit.checks.constant_messages import ConstantMessages, OtherPeople
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.observer.check import ENOUGH, ConstantKind
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.settings import settings
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import State as QuestionState
from fedaudit.reports.result import AuditResult
from tests.audit.tiny import SMALL

HERE = "tests.audit.checks.test_constant_messages"
TEXT: dict[str, Any] = {
    "federation": SMALL,
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1, "weighting": "uniform"},
    "workers": 0,
    "record": "all",
    "replay": {"sizes": [1, 5], "clients": 2, "groups": 10},
    "noise_audit": False,
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


class Spreads(Partition):
    """Examples of the classes that `only` names, if any, dealt out in numbers; the last client has the rest."""

    title, source = "Spread", ""

    @settings
    class Config:
        numbers: tuple[int, ...] = ()
        only: int = -1

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        rows = np.arange(len(labels.y), dtype=np.int64)
        rows = rows if self.config.only < 0 else rows[labels.y == self.config.only]
        return np.split(rows[: sum(self.config.numbers)], np.cumsum(self.config.numbers)[:-1])

    def describe(self) -> str:
        return "as many as are given"


def simulate(folder: Path, method: str, federation: dict[str, Any] | None = None, **settings: Any) -> Case:
    changes = {"federation": SMALL | (federation or {}), "method": {**TEXT["method"], "name": method, **settings}}
    config = Config.model_validate(TEXT | changes)
    run = RunDir.create(folder)
    execute(run, config, ["simulate"], lambda *_: None, skip_finished=False)
    return open_case(run, config)


def inspect(folder: Path, method: str, **changes: Any) -> list[ConstantKind]:
    case = simulate(folder, method, **changes)
    return list(ConstantMessages().check(case, Lab.from_case(case)).constant)


@pytest.mark.parametrize("method", ["Echo", "Constant"])
def test_what_does_not_depend_on_people_is_named_with_its_rounds_and_the_number_of_plays(
    tmp_path: Path, method: str
) -> None:
    [found] = inspect(tmp_path / "run", f"{HERE}:{method}")
    assert (found.kind, found.rounds) == ("local_model", (0, 1)) and found.is_enough
    assert ENOUGH == 200 <= found.plays < 250


def test_other_people_are_auxiliary_a_few_those_of_each_class_and_mixes_of_many_numbers(tmp_path: Path) -> None:
    case = simulate(tmp_path / "run", f"{HERE}:Echo")
    lab = Lab.from_case(case)
    assert lab is not None
    few, even, odd, *mixes = OtherPeople(case, lab).draw(0, 60)
    labels = lab.holdings.data.train.y
    assert len(few) == 2 and [np.unique(labels[rows]).tolist() for rows in (even, odd)] == [[0], [1]]
    assert len({*map(len, mixes)}) > 10 and min(map(len, mixes)) > 0
    assert len({round(float(labels[rows].mean()), 1) for rows in mixes}) > 5
    assert {*np.concatenate([few, even, odd, *mixes]).tolist()} == {*case.examples.auxiliary.tolist()}


NOBODY = {"auxiliary": 0.0, "reference": 0.3}


@pytest.mark.parametrize(
    ("numbers", "only", "clients"),
    [([30], -1, 1), ([0, 30, 0, 0], -1, 4), ([1, 1], -1, 2), ([20, 20, 20, 20], 1, 4), ([1, 40], -1, 2)],
    ids=["one client", "all but one empty", "two of one example", "one class", "one example beside many"],
)
@pytest.mark.parametrize("method", ["Echo", "fedavg"])
def test_where_nobody_else_can_be_played_often_enough_nothing_is_called_constant(
    tmp_path: Path, numbers: list[int], only: int, clients: int, method: str
) -> None:
    spread = {"name": f"{HERE}:Spreads", "numbers": numbers, "only": only}
    changes = {"clients": clients, "partition": spread, "holdout": NOBODY}
    found = inspect(tmp_path / "run", f"{HERE}:Echo" if method == "Echo" else method, federation=changes)
    assert not any(k.is_enough for k in found)
    assert all(k.plays == 0 for k in found)


def test_with_auxiliary_people_a_single_client_can_be_played(tmp_path: Path) -> None:
    [found] = inspect(tmp_path / "run", f"{HERE}:Echo", federation={"clients": 1})
    assert found.is_enough
    assert inspect(tmp_path / "other", "fedavg", federation={"clients": 1}) == []


def test_few_auxiliary_people_make_few_plays_and_their_number_is_said(tmp_path: Path) -> None:
    few = {"auxiliary": 0.03, "reference": 0.3}
    [found] = inspect(tmp_path / "run", f"{HERE}:Echo", federation={"holdout": few})
    assert 3 <= found.plays <= 15 and not found.is_enough  # four people, of two classes
    asked = [q for q in audit(tmp_path / "audit", "Echo", holdout=few).questions if q.observer == "server"]
    assert any(
        f"{found.plays} plays with other people could be made" in q.why for q in asked if not q.is_answered
    )


def test_code_that_trains_is_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = simulate(tmp_path / "run", "fedavg")
    played, replay = list[int](), Lab.replay

    def count(lab: Lab, like: Any, received: Any) -> Any:
        played.append(len(lab.holdings.parts[like.sender.number]))
        return replay(lab, like, received)

    monkeypatch.setattr(Lab, "replay", count)
    assert ConstantMessages().check(case, Lab.from_case(case)).constant == ()
    assert played == [2]


class Hidden(Echo):
    """Its code, run again, sends something else than was recorded, whatever it is played with."""

    runs: ClassVar[list[int]] = []

    def alter(self, client: Client, model: State) -> State:
        self.runs.append(client.index)
        return {k: torch.full_like(v, float(len(self.runs) <= 8)) for k, v in model.items()}


def test_a_recorded_message_must_be_that_of_its_own_client_as_well(tmp_path: Path) -> None:
    assert inspect(tmp_path / "run", f"{HERE}:Hidden") == []


def test_the_rest_of_a_message_may_depend_on_them(tmp_path: Path) -> None:
    found = inspect(tmp_path / "run", f"{HERE}:Echo", weighting="samples")
    assert [(k.kind, k.is_enough) for k in found] == [("local_model", True)]


@pytest.mark.parametrize(
    "method", ["fedavg", *(f"{HERE}:{n}" for n in ("Majority", "OneClass", "OneClient", "Later", "Remembers"))]
)
def test_a_message_that_depends_on_examples_anywhere_is_not_named(tmp_path: Path, method: str) -> None:
    assert inspect(tmp_path / "run", method) == []


def audit(folder: Path, method: str, **federation: Any) -> AuditResult:
    named = {"method": TEXT["method"] | {"name": f"{HERE}:{method}"}, "federation": SMALL | federation}
    config = Config.model_validate(TEXT | named | {"attacks": ["loss_threshold"]})
    run = RunDir.create(folder / "run")
    phases = ["simulate", "attack", "account", "score", "report"]
    WholeAudit(run, config).execute(phases, lambda *_: None)
    return AuditResult.model_validate_json(run.audit.read_bytes())


def test_what_a_client_sends_as_a_sign_of_life_is_asked_about_as_all_else(tmp_path: Path) -> None:
    """A kind's row says that it tells of nobody; only the client's code knows."""
    told, kept = (audit(tmp_path / m, m) for m in ("BeatsWithAnImage", "Beats"))
    of = "exact_record.server"
    (hidden,), (empty,) = ([q for q in result.questions if q.id == of] for result in (told, kept))
    assert hidden.required and hidden.state is QuestionState.EXPOSED and empty.state is QuestionState.CLEAR
    assert told.decision is not None and told.decision.word is not Word.READY
    assert kept.decision is not None and kept.decision.word is Word.READY


def test_an_audit_of_echoes_says_so_once_and_answers_what_is_asked(tmp_path: Path) -> None:
    result = audit(tmp_path, "Echo")
    assert {q.state for q in result.questions if q.required} == {QuestionState.CLEAR}
    told = {q.why for q in result.questions if q.required and q.observer == "server"}
    assert len(told) == 1
    assert re.match(r"in 2\d\d plays with other people, .* it is made of what they received alone$", told.pop())
    assert result.decision is not None and result.decision.word is Word.READY


def test_a_federation_of_one_client_whom_nobody_else_can_stand_for_is_not_ready(tmp_path: Path) -> None:
    result = audit(tmp_path, "Echo", clients=1, holdout=NOBODY)
    open_ = [q for q in result.questions if q.required and q.observer == "server" and not q.is_answered]
    assert open_ and all("no play with other people could be made, and 200 are needed" in q.why for q in open_)
    assert result.decision is not None and result.decision.word is Word.CANNOT_TELL
