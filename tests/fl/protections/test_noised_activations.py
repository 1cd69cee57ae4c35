"""Noised activations: each row clipped, a line for every message, and a record in all of them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.accounting.budget import towards
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.split_learning import SplitLearning, SplitUShape
from fedaudit.fl.protections.noised_activations import NoisedActivations
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Message, Uploads
from tests.fl.methods.worlds_of_methods import SETTINGS
from tests.fl.protections.sends import make, send
from tests.fl.worlds import EVERYONE, run, same

BATCH: Message = {
    Kind.SMASHED: {"activations": torch.tensor([[3.0, 4.0], [0.3, 0.4]]), "labels": torch.tensor([1, 0])}
}


def method(cls: type[Any], **settings: Any) -> Any:
    return cls(cls.Config(**(SETTINGS | settings)))


def test_each_row_is_clipped_alone_and_a_short_one_stays() -> None:
    found, _ = send(make(NoisedActivations, clip_norm=2.0, noise_multiplier=0.0), BATCH)
    rows = found[Kind.SMASHED]["activations"]
    assert torch.allclose(rows, torch.tensor([[1.2, 1.6], [0.3, 0.4]]))
    assert found[Kind.SMASHED]["labels"].tolist() == [1, 0]


def test_noise_has_the_deviation_of_its_line_and_another_record_moves_every_row_by_twice_the_clip() -> None:
    many: Message = {Kind.SMASHED: {"activations": torch.zeros(400, 50)}}
    found, lines = send(make(NoisedActivations, clip_norm=2.0, noise_multiplier=0.5), many)
    line = lines[0]
    assert float(found[Kind.SMASHED]["activations"].std()) == pytest.approx(1.0, rel=0.02)
    assert (line.noise_std, line.sensitivity, line.unit) == (1.0, 4.0 * 400**0.5, "record")


def test_what_it_says_in_clear_are_the_labels_that_cross_beside() -> None:
    _, lines = send(make(NoisedActivations), BATCH)
    assert [(r.kind, r.mechanism) for r in lines] == [("smashed", "gaussian"), ("smashed.labels", "none")]


def test_a_record_is_in_every_message_of_its_client(tmp_path: Path) -> None:
    """The layers that were trained on it make all later ones, however often the client passes over it."""
    noised = make(NoisedActivations, clip_norm=1.0, noise_multiplier=2.0)
    world = method(SplitUShape, rounds=3, local_epochs=2)
    run(world, folder=tmp_path, protections=[noised], script=EVERYONE)
    lines = [r for r in read(tmp_path / "ledger.jsonl") if r.kind == "smashed" and r.sender == "client/1"]
    for unit in ("record", "client"):
        _, read_by_server = towards("server", lines, unit)  # type: ignore[arg-type]
        assert [len(g) for g in read_by_server.values()] == [3 * 2 * 3]  # 20 examples are three batches
    assert {r.sensitivity for r in lines} == {2.0 * 8**0.5, 2.0 * 4**0.5}


def test_other_methods_and_other_kinds_are_refused() -> None:
    with pytest.raises(UserError, match="its clients send no smashed"):
        run(method(FedAvg), protections=[make(NoisedActivations)])
    with pytest.raises(UserError, match="must be of smashed"):
        make(NoisedActivations, kinds=(Kind.LOCAL_MODEL,))


def test_off_it_changes_nothing_and_on_it_does() -> None:
    def end(**settings: float) -> Any:
        return run(method(SplitLearning, local_epochs=1), protections=[make(NoisedActivations, **settings)])

    plain = run(method(SplitLearning, local_epochs=1))
    assert same(end(clip_norm=1e9, noise_multiplier=0.0), plain)
    assert not same(end(clip_norm=1.0, noise_multiplier=0.1), plain)


def test_an_audit_tries_it_at_the_median_norm_of_activations_and_on_nothing_else() -> None:
    tried = NoisedActivations.propose(Uploads((Kind.SMASHED,), 10, {Kind.SMASHED: 3.0}))
    assert tried is not None and tried["clip_norm"] == 3.0
    assert NoisedActivations.propose(Uploads((Kind.LOCAL_MODEL,), 10, {Kind.LOCAL_MODEL: 3.0})) is None
