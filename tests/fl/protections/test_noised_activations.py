"""Noised activations: each row clipped, a line for every message, one release of a record for every pass."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.accounting.budget import towards
from fedaudit.audit.accounting.units import select_passes
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
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


def test_noise_has_the_deviation_of_its_line_and_another_record_moves_a_row_by_twice_the_clip() -> None:
    many: Message = {Kind.SMASHED: {"activations": torch.zeros(400, 50)}}
    found, lines = send(make(NoisedActivations, clip_norm=2.0, noise_multiplier=0.5), many)
    line = lines[0]
    assert float(found[Kind.SMASHED]["activations"].std()) == pytest.approx(1.0, rel=0.02)
    assert (line.noise_std, line.sensitivity, line.unit, line.passes) == (1.0, 4.0, "record", 1)


def test_what_it_says_in_clear_are_the_labels_that_cross_beside() -> None:
    _, lines = send(make(NoisedActivations), BATCH)
    assert [(r.kind, r.mechanism) for r in lines] == [("smashed", "gaussian"), ("smashed.labels", "none")]


def test_a_record_is_in_one_message_of_every_pass_and_a_client_in_all(tmp_path: Path) -> None:
    noised = make(NoisedActivations, clip_norm=1.0, noise_multiplier=2.0, passes=2)
    world = method(SplitUShape, rounds=3, local_epochs=2)
    run(world, folder=tmp_path, protections=[noised], script=EVERYONE)
    lines = [r for r in read(tmp_path / "ledger.jsonl") if r.kind == "smashed" and r.sender == "client/1"]
    assert len(lines) == 3 * 2 * 3  # 20 examples are three batches
    assert len(select_passes(lines)) == 3 * 2
    _, of_records = towards("server", lines, "record")
    _, of_clients = towards("server", lines, "client")
    assert [len(g) for g in of_records.values()] == [6] and [len(g) for g in of_clients.values()] == [18]


def test_of_unlike_lines_the_dearest_count() -> None:
    _, lines = send(make(NoisedActivations, noise_multiplier=2.0), BATCH)
    dear: Release = replace(lines[0], noise_std=lines[0].noise_std / 2)
    assert select_passes([lines[0], dear, lines[0]]) == [dear]


def test_more_passes_than_the_ledger_counts_are_refused() -> None:
    with pytest.raises(UserError, match="counts 1 releases of an example and round, and clients make 2 passes"):
        run(method(SplitLearning, local_epochs=2), protections=[make(NoisedActivations)])


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
