"""The scope's sentences on who holds what are counted from the data, and say what nobody told."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.case.case import Case, Split
from fedaudit.audit.case.holders import holders
from fedaudit.audit.case.scope import describe_scope
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.reports.result import AuditScope
from tests.audit.case.recorded import Recorded

CROWDED = {"name": "n_class", "examples_per_client": 40}


@cache
def simulated(crowded: bool) -> SimulatedCase:
    federation = {"dataset": "digits", "clients": 20, "partition": CROWDED if crowded else "iid"}
    holdout = {"auxiliary": 0.3, "reference": 0.3}
    settings = {"federation": federation | {"holdout": holdout}, "method": {"name": "fedavg"}}
    return SimulatedCase(validate(Config, settings, "test"))


def recorded(**told: Any) -> Recorded:
    case = simulated(False)
    known = Split(**{"parts": dict(case.examples.parts)} | told)
    return Recorded(card=case.card, clients=20, data=case.data, streams=case.streams, examples=known)


def describe(case: Case) -> AuditScope:
    return describe_scope(case, case.training, case.network.size.parameters, [])


def texts(found: AuditScope) -> str:
    return f"{found.dataset_text} {found.clients_text}"


def test_shared_examples_are_counted_once_and_never_called_disjoint() -> None:
    said, records = texts(describe(simulated(True))), holders((case := simulated(True)).examples, case.data)
    several = [by for by in records.values() if len(by) > 1]
    assert f"{len(several):,} examples are held by more than one client" in said and len(several) > 20
    assert f"up to {max(map(len, several))} of them" in said
    assert f"{len(records):,} different examples with the clients" in said and "disjoint" not in said
    assert "none of them in two of these groups" in said


def test_where_nobody_shares_an_example_nothing_is_said_of_sharing() -> None:
    said = texts(describe(simulated(False)))
    assert "more than one client" not in said and "is not known" not in said and "held more than once" not in said


@pytest.mark.parametrize("told", [(), (0, 1)])
def test_of_clients_that_nobody_told_of_sharing_is_assumed(told: tuple[int, ...]) -> None:
    case = recorded(parts={k: simulated(False).examples.parts[k] for k in told})
    whom = "the clients" if not told else "18 clients"
    assert f"Which examples {whom} hold is not known" in texts(describe(case))
    assert "it is assumed" in texts(describe(case))


def test_copies_and_examples_that_are_held_out_as_well_are_counted() -> None:
    parts = dict(simulated(False).examples.parts)
    first = parts[0][:2]
    case = recorded(parts=parts | {0: np.append(parts[0], first)}, reference=first[:1])
    said = texts(describe(case))
    assert "2 examples are held more than once by one client" in said
    assert "1 of them in two of these groups" in said


def test_a_methods_constant_is_not_taken_for_a_privacy_budget() -> None:
    settings = {"federation": {"dataset": "digits", "clients": 2}, "method": {"name": "rebafl", "epsilon": 0.02}}
    shown = describe(SimulatedCase(validate(Config, settings, "test"))).training
    assert "epsilon" not in shown and shown["mu"] == "0.1"
    assert shown["epsilon (a constant of the method, no privacy budget)"] == "0.02"
