"""Every accountant: more releases never cost less; no noise, no bound; what it cannot do it refuses."""

from dataclasses import replace
from functools import cache
from math import inf

import pytest

from fedaudit.audit.accounting.accountant import Accountant, Bound
from fedaudit.audit.settings import catalog
from fedaudit.fl.ledger import Release

NAMES = catalog.names("accountants")
SERVER = ("server",)
GAUSS = Release(
    round=0,
    kind="model_delta",
    sender="client/0",
    observers=SERVER,
    mechanism="gaussian",
    noise_std=2.0,
    sensitivity=1.0,
    clipped="the whole message",
    source="dp_gaussian",
    clip_norm=1.0,
)
DRAWN = replace(
    GAUSS,
    sender="client/*",
    participation_seen_by=(),
    unit="client",
    sampling="poisson",
    sample_rate=0.1,
    coin="each",
)
OF_A_SIZE = replace(
    DRAWN, sampling="fixed_without_replacement", unit="record", adjacency="replace_one", clip_norm=1.0
)


@cache
def cost(name: str, count: int, kind: str) -> Bound:
    line = {"gaussian": GAUSS, "poisson": DRAWN, "fixed": OF_A_SIZE}[kind]
    made: Accountant = catalog.load("accountants", name)()
    return made.epsilon([replace(line, round=t, count=1) for t in range(count)], 1e-5)


@pytest.mark.nightly  # a process with its own engine for each bound
@pytest.mark.parametrize("kind", ["gaussian", "poisson", "fixed"])
@pytest.mark.parametrize("name", NAMES)
def test_more_releases_never_cost_less(name: str, kind: str) -> None:
    found = [cost(name, n, kind).epsilon for n in (1, 2, 8)]
    assert found == sorted(found) and all(e > 0 for e in found)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_each_has_something_that_it_bounds(name: str) -> None:
    assert min(cost(name, 2, kind).epsilon for kind in ("gaussian", "poisson", "fixed")) < inf


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_noise_or_no_clip_has_no_bound_and_is_named(name: str) -> None:
    bare = replace(GAUSS, mechanism="none", noise_std=0.0, kind="label_counts", source="")
    unclipped = replace(GAUSS, sensitivity=None, clipped="", clip_norm=None, kind="gradient")
    for spoiler in (bare, unclipped):
        found = catalog.load("accountants", name)().epsilon([GAUSS, spoiler], 1e-5)
        assert found.epsilon == inf and spoiler.kind in found.spoiled_by


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unsampled", ["gaussian", "laplace", "discrete_laplace", "randomized_response"])
def test_what_it_refuses_has_no_bound_and_a_phrase(name: str, unsampled: str) -> None:
    made: Accountant = catalog.load("accountants", name)()
    line = replace(GAUSS, mechanism=unsampled)  # type: ignore[arg-type]
    if reason := made.refuses(line):
        assert len(reason.split()) >= 3 and not reason.endswith(".")
        assert made.epsilon([line], 1e-5).epsilon == inf
    else:
        assert 0 < made.epsilon([line], 1e-5).epsilon < inf
