"""A count of examples that clients made or repeated is no count of records: noise for one hides none."""

import math
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.method import Method
from fedaudit.fl.protections.discrete_laplace import DiscreteLaplace
from fedaudit.fl.runtime.plugin import load, names
from tests.fl.test_all_methods import method
from tests.fl.worlds import data, parts, run

CLIENT = 4
COUNTING = [
    name
    for name in names("fedaudit.fl.methods")
    if Kind.NUM_EXAMPLES in load("fedaudit.fl.methods", name, Method).card.uplink  # type: ignore[type-abstract]
]


def uneven() -> list[np.ndarray]:
    """One client holds fifteen examples of a class and six of each other one; the others hold six of each."""
    rows = [np.flatnonzero(data(n=100).train.y[:90] == c) for c in range(4)]
    own = np.concatenate([rows[0][:15], *(r[:6] for r in rows[1:])])
    rest = [np.concatenate([r[-2 - 2 * k : len(r) - 2 * k] for r in rows]) for k in range(4)]
    return [*rest, own]


@cache
def heard(name: str, without: int | None) -> list[int]:
    """Numbers of examples that one client tells, of a federation in which it lacks one of its records."""
    index = uneven()
    if without is not None:
        index[CLIENT] = np.delete(index[CLIENT], without)
    everybody = [(tuple(range(5)), (0, 1, 2, 4))] * 4
    world = run(method(name), folder=Path(mkdtemp()), d=data(n=100), index=index, script=everybody)
    return [
        int(a.payload["count"])
        for a in world.artifacts
        if a.kind == Kind.NUM_EXAMPLES and a.channel == Channel.UPLINK and a.sender.index == CLIENT
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", COUNTING)
def test_one_record_moves_a_count_by_one_or_the_card_says_otherwise(name: str) -> None:
    whole, card = heard(name, None), load("fedaudit.fl.methods", name, Method).card  # type: ignore[type-abstract]
    for row in (0, 16):
        moved = [abs(a - b) for a, b in zip(whole, heard(name, row), strict=False)]
        assert max(moved, default=0) <= 1 or card.counts_made


@pytest.mark.nightly
def test_where_rare_classes_are_filled_up_one_record_of_the_largest_moves_more() -> None:
    assert max(abs(a - b) for a, b in zip(heard("faug", None), heard("faug", 0), strict=True)) > 1


def lines(name: str, folder: Path, **settings: Any) -> list[Release]:
    counts = DiscreteLaplace(DiscreteLaplace.Config(kinds=(Kind.NUM_EXAMPLES,), **settings))
    everybody = [(tuple(range(5)), (0, 1, 2, 4))] * 4
    run(
        method(name),
        folder=folder,
        d=data(n=100),
        index=parts(data(n=80), skew=False),
        script=everybody,
        protections=[counts],
    )
    return [r for r in read(folder / "ledger.jsonl") if r.kind == Kind.NUM_EXAMPLES]


@pytest.mark.parametrize(("name", "bounded"), [("fedavg", True), ("static_augmentation", False), ("faug", False)])
def test_noise_for_a_record_bounds_a_count_of_records_only(name: str, bounded: bool, tmp_path: Path) -> None:
    found = lines(name, tmp_path)
    assert found and {r.sensitivity for r in found} == ({1.0} if bounded else {None})
    for b in budgets(found, [PluginSpec(name="exact")], 1e-5):
        assert math.isfinite(b.epsilon_upper) is bounded
        assert bounded or b.spoiled_by == ["num_examples"]
