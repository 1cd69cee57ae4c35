"""Uploads stay where they were trained only under a server that does nothing but average them."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregation.aggregator import mean
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.execution.batched import takes_means_alone
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.wire.wire import Wire
from tests.fl.test_all_methods import method
from tests.fl.test_wire import CARD


def stays(name: str = "fedavg", **changes: Any) -> bool:
    plain = {"wire": Wire(CARD, Streams(0)), "compromise": Compromise(), "aggregator": mean()}
    return takes_means_alone(method(name), SimpleNamespace(**plain | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_models_that_are_only_averaged_stay(name: str) -> None:
    assert stays(name)


@pytest.mark.parametrize("name", ["fedopt", "rebafl", "scaffold", "fedasync", "split_learning", "gandalf"])
def test_uploads_that_a_methods_own_code_reads_do_not(name: str) -> None:
    assert not stays(name)


def test_uploads_that_a_rule_a_protection_or_an_adversary_reads_do_not() -> None:
    noise, lie = (
        configure(catalog.load(*of), settings, "test")
        for of, settings in (
            (("protections", "dp_gaussian"), {"clip_norm": 1.0, "noise_multiplier": 1.0}),
            (("adversaries", "sign_flip"), {}),
        )
    )
    assert not stays(aggregator=Median())
    assert not stays(wire=Wire(CARD, Streams(0), [noise]))
    assert not stays(compromise=Compromise(lie, frozenset({1})))
