"""Noised prototypes: no class is told, sums and counts share one sensitivity, and the bound is finite."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.accounting.accountants.exact import Exact
from fedaudit.audit.accounting.budget import SEES, budgets
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.noised_prototypes import PAIR, NoisedPrototypes
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message
from fedaudit.fl.wire.wire import Wire


def message(classes: list[int], counts: list[int], size: float = 0.5) -> Message:
    held = torch.tensor(classes)
    features = torch.full((len(classes), 4), size)
    return {
        Kind.LOCAL_PROTOTYPES: {"classes": held, "features": features},
        Kind.PROTO_COUNTS: {"classes": held, "counts": torch.tensor(counts)},
    }


def sent(tmp: Path, what: Message, more: tuple[Any, ...] = (), **settings: Any) -> tuple[Message, list[Any]]:
    log = Log(tmp / "ledger.jsonl")
    protection = NoisedPrototypes(NoisedPrototypes.Config(**settings))
    wire = Wire(ReBaFL.card, Streams(3), [protection, *more], None, log)
    heard = wire.uplink(0, what, 2, {Kind.GLOBAL_MODEL: {"w": torch.zeros(2)}})
    log.offset()
    assert heard is not None
    return heard, read(log.path)


def test_every_class_is_sent_whether_held_or_not(tmp_path: Path) -> None:
    for number, classes in enumerate(([1, 7], [0], list(range(10)))):
        (tmp_path / str(number)).mkdir()
        heard, lines = sent(tmp_path / str(number), message(classes, [5] * len(classes)))
        assert all(heard[k]["classes"].tolist() == list(range(10)) for k in PAIR)
        assert heard[Kind.LOCAL_PROTOTYPES]["features"].shape == (10, 4)
        assert [(r.kind, r.mechanism) for r in lines] == [(k, "gaussian") for k in PAIR]  # nothing in clear


def test_next_to_no_noise_leaves_prototypes_and_counts(tmp_path: Path) -> None:
    heard, _ = sent(tmp_path, message([1, 7], [30, 50]), norm=2.0, noise_multiplier=1e-9)
    torch.testing.assert_close(heard[Kind.LOCAL_PROTOTYPES]["features"][[1, 7]], torch.full((2, 4), 0.5))
    assert heard[Kind.PROTO_COUNTS]["counts"].tolist() == [1, 30, 1, 1, 1, 1, 1, 50, 1, 1]


def test_no_client_moves_sums_or_counts_by_more_than_the_ledger_says() -> None:
    plain = NoisedPrototypes(NoisedPrototypes.Config(norm=2.0, examples=40.0))
    for classes, counts, size in (([3], [10**6], 1e4), ([0, 1, 2], [30, 30, 30], 9.0), ([5], [40], 1.0)):
        what = message(classes, counts, size)
        sums, numbers = plain._sum_classes(what[Kind.LOCAL_PROTOTYPES], what[Kind.PROTO_COUNTS])
        assert float(sums.norm()) <= 80.0 * (1 + 1e-6) and float(numbers.norm()) <= 40.0 * (1 + 1e-6)
    assert float(sums.norm()) == pytest.approx(80.0)  # and one of them reaches it


def test_the_noise_is_that_of_the_ledger(tmp_path: Path) -> None:
    heard, lines = sent(tmp_path, message([0], [1], 0.0), classes=4000, examples=1e6, noise_multiplier=1.0)
    counts = heard[Kind.PROTO_COUNTS]["counts"].double()
    above = counts[counts > 1]  # the negative half is raised to 1
    assert len(above) == pytest.approx(2000, abs=5 * math.sqrt(1000))
    assert float(above.square().mean().sqrt()) == pytest.approx(lines[1].noise_std, rel=0.08)


def test_sums_and_counts_together_cost_one_release_of_their_multiplier(tmp_path: Path) -> None:
    _, lines = sent(tmp_path, message([1], [5]), noise_multiplier=2.0)
    assert Exact().epsilon(lines, 1e-5).epsilon == pytest.approx(1.993091, rel=1e-6)  # one release of z = 2


def test_rebafl_with_it_has_a_finite_bound_towards_everybody(tmp_path: Path) -> None:
    what = message([1, 2], [5, 6]) | {Kind.LOCAL_MODEL: {"w": torch.ones(2)}}
    _, lines = sent(tmp_path, what, (DPGaussian(DPGaussian.Config(noise_multiplier=4.0)),), noise_multiplier=4.0)
    found = budgets(lines, [PluginSpec(name="exact")], 1e-5)
    # two releases of z = 4 are one of 4 / sqrt(2): 1.3531, rounded up
    assert {b.observer: b.epsilon_upper for b in found} == dict.fromkeys(SEES, 1.36)


def test_prototypes_without_counts_or_of_unknown_classes_are_refused(tmp_path: Path) -> None:
    alone = {Kind.LOCAL_PROTOTYPES: message([1], [5])[Kind.LOCAL_PROTOTYPES]}
    with pytest.raises(UserError, match="local_prototypes alone"):
        sent(tmp_path, alone)
    with pytest.raises(UserError, match="there are 10"):
        sent(tmp_path, message([12], [5]))
