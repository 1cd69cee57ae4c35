"""Many senders that came in rounds of their own: linear work, few compositions, and still the worst of them."""

import cProfile
import os
import pstats
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from fedaudit.audit.accounting import child, verify
from fedaudit.audit.accounting.accountant import Bound
from fedaudit.audit.accounting.accountants import pld
from fedaudit.audit.accounting.accountants.auto import Auto
from fedaudit.audit.accounting.accountants.exact import Exact
from fedaudit.audit.accounting.budget import budgets, towards
from fedaudit.audit.accounting.child import Exceeded, call, keep
from fedaudit.audit.accounting.terms import Term
from fedaudit.audit.accounting.units import count_draws, covers
from fedaudit.audit.noise_audit.other_lines import find_other_line
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import Release
from tests.audit.accounting.test_exact import release

ALL = ("server", "client", "public")
EXACT = [PluginSpec(name="exact")]
AUTO = [PluginSpec(name="auto", settings={"cross_check": False})]


def federation(senders: int, rounds: int = 10, zs: Sequence[float] = (2.0,)) -> list[Release]:
    """Noise on uploads by whoever comes in a round, and on the mean of all by the server."""
    came = np.random.default_rng(3).random((senders, rounds)) < 0.5
    drawn = {"sampling": "poisson", "sample_rate": 0.5}
    own = [
        release(zs[k % len(zs)], sender=f"client/{k}", observers=ALL, round=t, **drawn)
        for k in range(senders)
        for t in range(rounds)
        if came[k, t]
    ]
    common = {
        "sender": "client/*",
        "observers": ("client", "public"),
        "participation_seen_by": ("server",),
        **drawn,
    }
    return own + [release(1.5, kind="global_model", round=t, **common) for t in range(rounds)]


def count_calls(senders: int) -> int:
    releases, watch = federation(senders), cProfile.Profile()
    watch.runcall(budgets, releases, EXACT, 1e-5)
    return int(pstats.Stats(watch).total_calls)  # type: ignore[attr-defined]


@pytest.mark.nightly
def test_two_thousand_senders_take_linear_work() -> None:
    count_calls(2)  # imports
    assert count_calls(2000) <= 4.3 * count_calls(500)


@pytest.mark.nightly
def test_of_two_thousand_senders_few_are_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[int] = []
    whole = Exact.compose

    def counted(self: Exact, releases: Sequence[Release], delta: float) -> Bound:
        composed.append(len(releases))
        return whole(self, releases, delta)

    monkeypatch.setattr(Exact, "compose", counted)
    budgets(federation(2000), EXACT, 1e-5)
    assert len(composed) == 4  # who came most often, towards each kind of observer


def test_the_worst_of_many_is_the_worst_of_all_one_by_one() -> None:
    releases = federation(6, 3, (1.0, 2.5))
    with keep():
        stated = {b.observer: b.epsilon_upper for b in budgets(releases, AUTO, 1e-5)}
        for observer in ("server", "another client"):
            groups = towards(observer, releases, "client")[1].values()
            alone = max(Auto(Auto.Config(cross_check=False)).epsilon(g, 1e-5).epsilon for g in groups)
            assert alone <= stated[observer] <= 1.01 * alone


def test_a_draw_covers_another_only_where_as_much_was_released_in_it() -> None:
    def drawn(*rounds: Sequence[float]) -> Counter[frozenset[tuple[object, int]]]:
        return count_draws([release(z, round=t) for t, zs in enumerate(rounds) for z in zs])

    assert covers(drawn((1, 2), (1, 2)), drawn((1,), (1, 2))) and covers(drawn((1, 2), (3,)), drawn((2,)))
    assert not covers(drawn((1,), (1, 2)), drawn((1, 2), (1, 2)))
    assert not covers(drawn((1, 2)), drawn((1,), (2,)))  # two draws are not one
    assert not covers(drawn((1,), (1,)), drawn((1, 1)))  # nor one two
    assert not covers(drawn((1,)), drawn((2,)))


class Watched(Release):
    """A line that counts how often anybody asks for its round."""

    asked: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.asked += name == "round"
        return super().__getattribute__(name)


def count_asked(rounds: int) -> int:
    own = {"sampling": "poisson", "sample_rate": 0.5, "sender": "client/*", "observers": ALL}
    lines = [Watched(**vars(release(1.0, round=t, **own))) for t in range(rounds)]
    traffic: Any = [Watched(**vars(release(1.0, round=t, **own))) for t in range(rounds)]
    for x in traffic:
        object.__setattr__(x, "senders", 1)
    Watched.asked = 0
    find_other_line(lines, lines)
    verify._check_participation(4, lines, traffic)
    return Watched.asked


def test_a_ledger_is_verified_in_work_that_grows_as_its_rounds_do() -> None:
    assert 0 < count_asked(80) <= 2.1 * count_asked(40)


# The child ----------------------------------------------------------------------------------------


@pytest.fixture
def no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a user's program begins; all tests run inside of a block."""
    monkeypatch.setattr(child, "_blocks", [])
    monkeypatch.setattr(child, "_kept", {})


@pytest.mark.usefixtures("no_block")
def test_calls_of_one_block_share_a_child_that_ends_with_it() -> None:
    with keep():
        first = call(os.getpid, 60, 4.0)
        with keep():
            assert call(os.getpid, 60, 4.0) == first
        assert call(os.getpid, 60, 4.0) == first != os.getpid()
        assert call(os.getpid, 60, 3.0) != first  # another cap
        with pytest.raises(Exceeded, match="ValueError"):
            call(int, 60, 4.0, "no number")
        assert call(os.getpid, 60, 4.0) != first  # that one is gone
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.usefixtures("no_block")
def test_calls_outside_of_a_block_share_nothing() -> None:
    assert call(os.getpid, 60, 4.0) != call(os.getpid, 60, 4.0)


# Curves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.5), (0.38, 1.0), (5.0, 0.01), (0.05, 0.1), (50.0, 0.001)])
@pytest.mark.parametrize("removed", [True, False])
def test_curves_of_sampled_noise_are_those_of_the_library(z: float, rate: float, removed: bool) -> None:
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    direction = AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    theirs = GaussianPrivacyLoss(z, sampling_prob=rate, adjacency_type=direction)
    ends = theirs.connect_dots_bounds()
    epsilon = np.linspace(ends.epsilon_lower, ends.epsilon_upper, 501)
    ours = pld.curve(Term("gaussian", z, "poisson", rate), epsilon, removed)
    np.testing.assert_allclose(ours, theirs.get_delta_for_epsilon(epsilon), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("z", "rate", "count"), [(1.0, 0.1, 40), (0.6, 0.02, 300), (2.0, 1.0, 7)])
def test_bounds_are_those_of_the_librarys_own_distributions(z: float, rate: float, count: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as library

    term, step = Term("gaussian", z, "poisson" if rate < 1 else "none", rate), 1e-3
    ours = pld.on_grid({term: count}, 1e-5, step, pld.distribution)
    whole = library.from_gaussian_mechanism(z, sampling_prob=rate, value_discretization_interval=step)
    assert ours == pytest.approx(whole.self_compose(count, 1e-15).get_epsilon_for_delta(1e-5), rel=1e-9)
