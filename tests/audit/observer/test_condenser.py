"""Adversaries condense as clients do: the method's code, the run's protections, whatever the cores."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.condensed.condensed_recovery import CondensedRecovery
from fedaudit.attacks.condensed.condensed_refinement import CondensedRefinement
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer.condenser import AuxiliaryCondenser, condenser
from fedaudit.audit.observer.view import grant_knowledge
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.families.condensation import ClassBatch, Condensing, condense
from fedaudit.fl.model import initialise
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.workers import one_thread

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.35, "reference": 0.25},
    },
    "method": {"name": "feddc_condense", "rounds": 2, "iterations": 5},
    "workers": 0,
}


def world(**changes: Any) -> SimulatedCase:
    return SimulatedCase(validate(Config, SETTINGS | changes, "test"))


@cache
def groups() -> tuple[Examples, ...]:
    """Fourteen images alone: two lots of them."""
    known = world().population.auxiliary[:14]
    train = world().data.train
    return tuple(Examples(x=train.x[i : i + 1], y=train.y[i : i + 1]) for i in known)


def find(case: SimulatedCase) -> AuxiliaryCondenser | None:
    return condenser(case, case.card, case.protections, case.data)


def made(seed: int = 3, cores: int = 0, **changes: Any) -> Any:
    found = find(world(**changes))
    assert found is not None
    with one_thread(), share_cores(cores):
        return found(groups(), seed)


def test_it_is_the_methods_condensation_to_the_last_bit() -> None:
    here, first = world(), groups()[:12]
    net = initialise(here.network.make, Streams(3))
    cells = [ClassBatch(normalise(torch.from_numpy(g.x), here.data), int(g.y[0])) for g in first]
    expected = condense(net, cells, Condensing(iterations=5), Streams(3).torch("condense", 0))
    assert np.array_equal(made()[:12], expected[:, 0].numpy())


def test_cores_change_nothing_and_the_seed_does() -> None:
    assert np.array_equal(made(), made(cores=2))
    assert not np.array_equal(made(), made(seed=4))


def test_images_pass_through_the_protections_of_the_run() -> None:
    noisy = {"name": "dp_gaussian", "kinds": ["condensed_images"], "clip_norm": 1.0, "noise_multiplier": 1e-6}
    clipped = made(protections=[noisy])
    np.testing.assert_allclose(np.sqrt((clipped**2).sum((1, 2, 3))), 1, atol=1e-3)


def test_who_knows_the_architecture_may_condense_where_clients_do() -> None:
    assert grant_knowledge(world(), CondensedRefinement.card).condenser is not None
    assert grant_knowledge(world(), CondensedRecovery.card).condenser is None
    plain = world(method={"name": "fedavg", "rounds": 1})
    assert find(plain) is None
    reason = CondensedRefinement().not_applicable([], grant_knowledge(plain, CondensedRefinement.card))
    assert "could repeat" in reason


@pytest.mark.parametrize("more", [1, 2])
def test_a_group_of_any_size_gives_one_image(more: int) -> None:
    train, label = world().data.train, int(groups()[0].y[0])
    rows = np.flatnonzero(train.y == label)[:more]
    group = replace(groups()[0], x=train.x[rows], y=train.y[rows])
    found = find(world(method=SETTINGS["method"] | {"images_per_class": 2}))
    assert found is not None and found([group], 0).shape == (1, 1, 8, 8)
