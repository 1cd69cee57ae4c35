"""Numerical accountants: values of other programs, order between engines, refusals, caps.

GOLDEN comes from dp-accounting 0.6, prv-accountant 0.2, Opacus 1.6 (PRV) and a Fourier transform of our
own, run when the accounting was specified; for fixed-size sampling the lower ends are Poisson's.
"""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedaudit.audit.accounting import accountant
from fedaudit.audit.accounting.accountant import NOTHING, Bound, explain_full_count, observe_release, seen_as
from fedaudit.audit.accounting.accountants import pld, rdp, wor_pld
from fedaudit.audit.accounting.accountants.auto import Auto, Others, choose_engine, contradiction, tightest
from fedaudit.audit.accounting.accountants.exact import Exact
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.rdp import RDP
from fedaudit.audit.accounting.accountants.wor_pld import WorPLD
from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.child import Exceeded, call, keep
from fedaudit.audit.accounting.terms import Term, coarsen_terms, terms
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import Release
from tests.audit.accounting.test_exact import release

Terms = Mapping[Term, int]
OWN = 7.0  # gigabytes of a child that may be stopped: the one that all tests share has more


def poisson(z: float, q: float, mechanism: str = "gaussian") -> Term:
    return Term(mechanism, z, "poisson", q)  # type: ignore[arg-type]


def sized(z: float, drawn: int, of: int) -> Term:
    return Term("gaussian", z, "fixed_without_replacement", drawn / of)


def plain(z: float, mechanism: str = "gaussian") -> Term:
    return Term(mechanism, z, "none", 1.0)  # type: ignore[arg-type]


# terms, delta, tightest known value, RDP of dp-accounting
GOLDEN = [
    ({plain(1.0): 1}, 1e-5, 4.377178, 4.728507),
    ({plain(4.844805): 1}, 1e-5, 0.750977, 0.821969),
    ({poisson(1.0, 0.01): 1000}, 1e-5, 1.82824, 2.101367),
    ({poisson(1.1, 256 / 60000): 14040}, 1e-5, 2.37956, 2.594363),
    ({poisson(0.5, 0.1): 200}, 1e-5, 45.3712, 59.131638),
    ({poisson(1.0, 0.1): 2000}, 1e-2, 27.3884, 36.394883),
    ({poisson(1.0, 0.01): 500, poisson(1.5, 0.02): 500}, 1e-5, 1.89748, 2.147668),
    ({poisson(0.7, 0.001): 10000}, 1e-6, 1.63692, 2.473040),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("counts", "delta", "value", "renyi"), GOLDEN)
def test_the_engines_have_the_published_epsilon(counts: Terms, delta: float, value: float, renyi: float) -> None:
    found = pld.bound(counts, delta).epsilon
    assert value * (1 - 2e-5) <= found <= value * (1 + 2e-4)
    loose = rdp.bound(counts, delta).epsilon
    assert loose == pytest.approx(renyi, rel=1e-5) and loose >= found - 1e-3
    assert pld.library_bound(counts, delta) == pytest.approx(found, rel=1e-5)


# z, rate, releases, delta: what a grid 1/50 of the losses' spread gives
SMALL = [
    (20.0, 0.001, 100_000, 1e-5, 0.0452867),
    (10.0, 0.0001, 1_000_000, 1e-6, 0.0337721),
    (50.0, 0.01, 1000, 1e-5, 0.0163238),
    (2.0, 0.0001, 100_000, 1e-6, 0.0592552),
]


@pytest.mark.parametrize(("z", "q", "count", "delta", "value"), SMALL)
def test_small_losses_have_a_grid_of_their_own(
    z: float, q: float, count: int, delta: float, value: float
) -> None:
    assert pld.bound({poisson(z, q): count}, delta).epsilon == pytest.approx(value, rel=2e-3)
    assert pld.on_grid({poisson(z, q): count}, delta, 1e-5 * value, pld.distribution) >= value * (1 - 1e-4)


OTHER = [
    ({plain(1.0, "laplace"): 1}, 1e-5, 0.99998),
    ({plain(10.0, "laplace"): 100}, 1e-5, 4.220347),
    ({poisson(1.0, 0.1, "laplace"): 1}, 1e-9, 0.158565),
    ({poisson(1.0, 0.1, "laplace"): 200}, 1e-5, 6.146710),
    ({plain(2.0, "discrete_laplace"): 1}, 1e-9, 0.5),
    ({plain(1 / math.log(3), "randomized_response"): 1}, 1e-9, 1.098612),
    ({plain(1 / math.log(11), "randomized_response"): 1}, 1e-9, 2.397895),
]


@pytest.mark.parametrize(("counts", "delta", "value"), OTHER)
def test_pld_of_other_noise_has_the_published_epsilon(counts: Terms, delta: float, value: float) -> None:
    assert pld.bound(counts, delta).epsilon == pytest.approx(value, rel=2e-4, abs=5e-5)


def test_randomised_response_counts_every_answer() -> None:
    # dp-accounting 0.6's own accountant says 1.0987 here: it loses the count
    twenty = {plain(1 / math.log(3), "randomized_response"): 20}
    assert pld.bound(twenty, 1e-5).epsilon == pytest.approx(21.969087, rel=1e-4)


def test_large_losses_are_not_understated() -> None:
    assert 1189.7767 <= pld.bound({plain(1.0): 2000}, 1e-5).epsilon <= 1191
    exact = Exact().compose([release(1.0, count=2000)], 1e-5).epsilon
    assert exact == pytest.approx(1189.7767, rel=1e-6)


def test_a_tree_counts_its_depth() -> None:
    # a record is in ceil(log2 128) + 1 = 8 nodes
    assert Exact().compose([release(5.0, count=8)], 1e-5).epsilon == pytest.approx(2.288387, rel=1e-5)
    assert Exact().compose([release(10.0, count=80)], 1e-5).epsilon == pytest.approx(3.848610, rel=1e-5)


# drawn, of, z relative to the replace-one sensitivity, releases, delta, lower end, ours
SIZED = [
    (100, 1000, 1.0, 1, 1e-5, 1.6845, 1.6845),
    (100, 1000, 1.0, 100, 1e-5, 7.0466, 7.8049),
    (10, 1000, 1.0, 1000, 1e-5, 1.8289, 2.1990),
    (9, 89, 1.0, 2000, 1e-2, 27.8445, 37.4480),
    (9, 89, 3.0, 2000, 1e-2, 4.2127, 4.8128),
    (10, 100, 0.25, 200, 1e-5, 252.388, 267.006),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("drawn", "of", "z", "count", "delta", "low", "value"), SIZED)
def test_fixed_size_sampling_has_the_published_epsilon(
    drawn: int, of: int, z: float, count: int, delta: float, low: float, value: float
) -> None:
    found = wor_pld.bound({sized(z, drawn, of): count}, delta)
    assert found.epsilon == pytest.approx(value, rel=3e-4)
    assert found.lower == pytest.approx(low, rel=4e-4)
    assert found.lower is not None and found.lower <= found.epsilon * (1 + 1e-6)


def test_fixed_size_sampling_is_far_below_its_renyi_bound() -> None:
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    # this accountant takes multipliers relative to the sensitivity under its own relation
    renyi.compose(SampledWithoutReplacementDpEvent(1000, 100, GaussianDpEvent(1.0)), 100)
    found = wor_pld.bound({sized(1.0, 100, 1000): 100}, 1e-5).epsilon
    assert found < renyi.get_epsilon(1e-5) == pytest.approx(14.0538, rel=1e-4)


def test_the_dominating_curve_of_one_draw_is_a_hockey_stick() -> None:
    import numpy as np
    from scipy.integrate import quad
    from scipy.stats import norm

    term = sized(0.8, 3, 10)
    for epsilon in (-0.3, 0.0, 0.4, 1.1):
        p = lambda x: 0.7 * norm.pdf(x, 0, 0.8) + 0.3 * norm.pdf(x, 1, 0.8)  # noqa: E731
        q = lambda x: norm.pdf(x, 0, 0.8)  # noqa: E731
        first, second = (p, q) if epsilon >= 0 else (q, p)
        size = abs(epsilon)
        area = quad(lambda x: max(0.0, first(x) - math.exp(size) * second(x)), -9, 10, limit=400)[0]  # noqa: B023
        if epsilon < 0:  # P against (1-q) P + q Q is the same pair, mirrored, at the other epsilon
            area = quad(lambda x: max(0.0, p(x) - math.exp(size) * q(x)), -9, 10, limit=400)[0]  # noqa: B023
            area = 1 - math.exp(epsilon) + math.exp(epsilon) * area
        assert wor_pld.curve(term, np.array([epsilon]))[0] == pytest.approx(area, abs=1e-7)


def test_the_curve_is_the_amplification_theorem_for_subsets_and_convex() -> None:
    import numpy as np
    from scipy.stats import norm

    z, q = 0.7, 0.15
    whole = np.linspace(0.0, 6.0, 200)  # epsilon of the mechanism without sampling
    theirs = q * (norm.cdf(0.5 / z - whole * z) - np.exp(whole) * norm.cdf(-0.5 / z - whole * z))
    amplified = np.log1p(q * np.expm1(whole))
    term = Term("gaussian", z, "fixed_without_replacement", q)
    assert wor_pld.curve(term, amplified) == pytest.approx(theirs, abs=1e-12)
    alpha = np.linspace(0.05, 4.0, 400)
    assert np.diff(wor_pld.curve(term, np.log(alpha)), 2).min() > -1e-12


def test_a_finer_grid_moves_fixed_size_sampling_by_less_than_3_in_10000() -> None:
    counts = {sized(1.0, 10, 1000): 1000}
    coarse = pld.on_grid(counts, 1e-5, 1e-3, wor_pld.distribution)
    fine = pld.on_grid(counts, 1e-5, 2e-4, wor_pld.distribution)
    assert fine <= coarse <= fine * (1 + 3e-4)


def test_epsilon_falls_with_noise_and_rises_with_rate_and_rounds() -> None:
    def cost(z: float, q: float, count: int) -> float:
        return pld.bound({poisson(z, q): count}, 1e-5).epsilon

    base = cost(1.0, 0.05, 50)
    assert cost(1.3, 0.05, 50) < base < cost(1.0, 0.06, 50)
    assert base < cost(1.0, 0.05, 60) < Exact().compose([release(1.0, count=60)], 1e-5).epsilon


@pytest.mark.nightly
def test_two_thousand_different_releases_are_rounded_to_few_terms() -> None:
    counts = {poisson(0.8 + i * 8e-4, 0.01 + (i * 37 % 2000) * 2e-5): 1 for i in range(2000)}
    found = pld.bound(counts, 1e-5)
    assert 7.5 < found.epsilon < 9.3 and "rounded" in found.note
    assert len(terms([release(1 + i / 1000) for i in range(2000)])) == 1  # Gaussians are one Gaussian


@pytest.mark.nightly
def test_rounding_many_terms_never_lowers_a_cost() -> None:
    counts = {poisson(0.8 + i / 50, 0.01 + (i * 7 % 20) / 500): 300 for i in range(12)}
    few = coarsen_terms(counts, 6)
    assert len(few) < len(counts) and sum(few.values()) == sum(counts.values())
    loose, tight = (pld.compose_terms(c, 1e-5, pld.distribution).epsilon for c in (few, counts))
    assert tight <= loose <= 1.6 * tight
    assert coarsen_terms(counts, 12) == counts


# Which engine, and for whom --------------------------------------------------------------------

AMPLIFIED = {"sender": "client/*", "participation_seen_by": ("server",), "sample_rate": 0.1}


def hidden(z: float = 1.0, **changes: object) -> Release:
    return release(z, **(AMPLIFIED | {"sampling": "poisson"} | changes))


HUNDRED = [hidden(round=t) for t in range(100)]  # a draw of its own in every round


def test_each_kind_of_release_has_its_engine() -> None:
    assert choose_engine({plain(1.0): 3, plain(2.0): 1}, 1e-5) is Exact
    assert choose_engine({plain(1.0, "laplace"): 1}, 1e-5) is Exact
    assert choose_engine({plain(1.0, "laplace"): 2}, 1e-5) is PLD
    assert choose_engine({poisson(1.0, 0.1): 1}, 1e-5) is PLD
    assert choose_engine({sized(1.0, 1, 10): 1, plain(1.0): 1}, 1e-5) is WorPLD
    assert choose_engine({poisson(1.0, 0.1): 1}, 0.0) is Exact


def test_an_observer_who_sees_who_takes_part_earns_no_amplification() -> None:
    drawn = hidden()
    assert observe_release(drawn, {"public"}) == drawn
    assert observe_release(drawn, {"server", "client", "public"}).sampling == "unknown"
    # a line of one client exists because it took part
    assert observe_release(hidden(sender="client/3"), {"public"}).sampling == "unknown"
    # a record's batch is drawn inside the client, and such lines are there for every round
    batch = hidden(sender="client/3", unit="record", participation_seen_by=())
    assert observe_release(batch, {"server"}) == batch


def test_poisson_amplification_does_not_survive_replacement() -> None:
    assert seen_as(hidden(), "client", "add_or_remove_one").sampling == "poisson"
    replaced = seen_as(hidden(), "client", "replace_one")
    assert replaced.sampling == "unknown" and replaced.sensitivity == 2.0
    fixed = hidden(sampling="fixed_without_replacement", adjacency="replace_one")
    assert observe_release(fixed, {"public"}) == fixed and seen_as(fixed, "client", "replace_one") == fixed
    removed = hidden(sampling="fixed_without_replacement")
    # somebody else is drawn in the place of a client that is gone, and may send the opposite
    assert observe_release(removed, {"public"}) == replace(fixed, sensitivity=2 * (removed.sensitivity or 0.0))
    assert observe_release(removed, {"server"}).sampling == "unknown"


def test_replacement_is_exact_at_half_the_multiplier() -> None:
    # dp-accounting's two accountants disagree on this convention: 9.9973 and 4.7285
    replaced = seen_as(release(1.0), "client", "replace_one")
    assert Exact().epsilon([replaced], 1e-5).epsilon == pytest.approx(9.997256, rel=1e-6)


class Counting(Auto):
    """Says in its note how often it was told to check."""

    checks = 0

    def cross_check(self, bound: Bound, releases: Sequence[Release], delta: float) -> Bound:
        type(self).checks += 1
        return replace(bound, note=f"check {type(self).checks}")


def test_observers_who_read_the_same_are_checked_once() -> None:
    everyone = [release(observers=("server", "client", "public"))]
    found = budgets(everyone, [PluginSpec(name=f"{__name__}:Counting")], 1e-5)
    assert len(found) == 3 and all(b.note.startswith("check 1 ") for b in found)


@pytest.mark.nightly
def test_the_chosen_engine_is_named_and_two_others_agree() -> None:
    auto = Auto()
    found = auto.epsilon(HUNDRED, 1e-5)
    assert found.engine == "PLD" and found.epsilon == pytest.approx(7.0466, rel=1e-3)
    checked = auto.cross_check(found, HUNDRED, 1e-5)
    assert not checked.disagrees
    assert "RDP 7.904" in checked.note and "PLD of dp-accounting 7.047" in checked.note


def test_engines_that_disagree_say_so() -> None:
    others = Others(8.0, 7.05)
    assert not contradiction(Bound(epsilon=7.05, engine="PLD"), others)
    for wrong, who in (
        (3.5, {"PLD of dp-accounting"}),
        (7.5, {"PLD of dp-accounting"}),
        (9.5, {"RDP", "PLD of dp-accounting"}),
    ):
        found = contradiction(Bound(epsilon=wrong, engine="PLD"), others)
        assert found.startswith(f"PLD gives {wrong:g}, while")
        assert {name for name in ("RDP", "PLD of dp-accounting") if name in found} == who


def test_past_its_cap_an_accountant_is_inconclusive_and_auto_falls_back() -> None:
    short = PLD.Config(seconds=0.01, gigabytes=OWN)
    found = PLD(short).epsilon(HUNDRED, 1e-5)
    assert found.inconclusive and found.epsilon == math.inf and "longer than 0.01 s" in found.note
    whole = tightest(terms(HUNDRED), 1e-5, short)
    assert whole.epsilon == Exact().epsilon([release(1.0)] * 100, 1e-5).epsilon
    assert not whole.inconclusive and "not credited" in whole.note


def test_the_same_terms_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(function: object, *args: Any) -> object:
        asked.append(function)
        return call(function, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(accountant, "call", counted)
    counts = {poisson(1.03, 0.07): 3}
    first, second = (PLD().cost(counts, 1e-5) for _ in range(2))
    assert first == second and len(asked) == 1
    assert PLD().cost(counts, 1e-6).epsilon > first.epsilon and len(asked) == 2
    assert PLD().cost({poisson(1.03, 0.07): 4}, 1e-5).epsilon > first.epsilon and len(asked) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the processor time of another process is not known here")
def test_a_cap_is_of_the_processor_so_that_a_bound_does_not_depend_on_what_else_the_machine_does() -> None:
    with keep():
        call(len, 60, OWN, ())  # its start is no part of what follows
        assert call(time.sleep, 0.5, OWN, 1.5) is None  # as where others have the processor
        with pytest.raises(Exceeded, match=r"longer than 0\.5 s"):
            call(sum, 0.5, OWN, range(10**12))
        with pytest.raises(Exceeded, match=r"longer than 0\.05 s"):  # it hangs
            call(time.sleep, 0.05, OWN, 60.0)


def test_auto_never_exceeds_what_crediting_no_sampling_gives() -> None:
    # nearly everybody takes part and there is next to no noise: numerical composition is looser there
    counts = {poisson(0.02, 0.99): 1}
    found, exact = tightest(counts, 1e-2, PLD.Config()), Exact().epsilon([release(0.02)], 1e-2)
    assert found.epsilon == exact.epsilon < pld.bound(counts, 1e-2).epsilon
    assert found.engine == Exact.card.title


def hungry() -> int:
    return len(bytearray(3_000_000_000))


def wrong() -> int:
    raise ValueError("no such thing")


@pytest.mark.nightly
def test_a_child_is_held_to_its_memory_and_its_errors_are_told() -> None:
    with pytest.raises(Exceeded, match="more than 1 GB"):
        call(hungry, 20, 1.0)
    with pytest.raises(Exceeded, match="ValueError: no such thing"):
        call(wrong, 20, 1.0)
    assert call(math.hypot, 20, 1.0, 3, 4) == 5


def test_engines_refuse_what_they_were_not_made_for() -> None:
    fixed = hidden(sampling="fixed_without_replacement", adjacency="replace_one")
    replaced = hidden(adjacency="replace_one")
    laplace = release(mechanism="laplace")
    for engine, accepted, refused in (
        (PLD(), [hidden(), laplace], [fixed, replaced]),
        (RDP(), [hidden(), release()], [fixed, replaced, laplace]),
        (WorPLD(), [fixed, release(adjacency="replace_one")], [hidden(), replaced, release()]),
    ):
        assert not any(engine.refuses(r) for r in accepted)
        for r in refused:
            assert engine.refuses(r)
            bound = engine.epsilon([r], 1e-5)
            assert bound.epsilon == math.inf and bound.note.startswith("Not covered: ")


def test_the_ends_of_every_range_have_their_obvious_cost() -> None:
    for engine in (Exact(), PLD(), RDP(), Auto()):
        assert engine.epsilon([], 1e-5) == NOTHING and NOTHING.epsilon == math.inf
        assert engine.epsilon([hidden(0.0)], 1e-5).epsilon == math.inf
    never = hidden(sample_rate=0.0)
    assert Auto().epsilon([never], 1e-5).epsilon == 0.0 and PLD().epsilon([never], 1e-5).epsilon == 0.0
    always = hidden(sample_rate=1.0)
    assert Auto().epsilon([always], 1e-5).epsilon == Exact().epsilon([release()], 1e-5).epsilon
    assert Auto().epsilon([hidden()], 0.0).epsilon == math.inf
    assert PLD().epsilon([hidden()], 0.0).epsilon == math.inf
    assert rdp.bound({poisson(1.0, 0.1): 1}, 0.5).epsilon == 0.0
    assert release(count=0) and not terms([release(count=0)])


# Copies, members, and why nothing is credited ------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "least", "most"), [(1, 7.898, 8.0), (2, 18.3719, 18.4717), (5, 61.0545, 61.155)]
)
def test_copies_with_a_coin_each_cost_what_their_binomial_mixture_costs(
    copies: int, least: float, most: float
) -> None:
    """A patient's notes under DP-SGD: at least by an own FFT, at most by dp-accounting's mixture of Gaussians."""
    found = pld.bound({Term("gaussian", 0.936, "poisson", 0.1, copies): 100}, 1e-5).epsilon
    assert least < found < most * (1 + 1e-5)


def test_members_who_know_each_other_see_through_the_rounds_of_their_own() -> None:
    """(1 - q) sampled, q^2 full, q (1 - q) nothing: at least 11.2856 by an own FFT, where 8 was said."""
    known = Term("gaussian", 1.216, "poisson", 0.2, told=True)
    assert pld.bound({known._replace(told=False): 60}, 1e-5).epsilon == pytest.approx(7.9956, rel=1e-4)
    found = pld.bound({known: 60}, 1e-5).epsilon
    assert 11.2856 < found < 11.34
    fixed = known._replace(sampling="fixed_without_replacement")
    assert wor_pld.bound({fixed: 60}, 1e-5).epsilon > max(
        found, wor_pld.bound({fixed._replace(told=False): 60}, 1e-5).epsilon
    )
    with pytest.raises(ValueError, match="see through"):
        rdp.bound({known: 60}, 1e-5)


def test_only_members_are_told_and_only_gaussian_noise_is_credited_then() -> None:
    told = hidden(participation_seen_by=("server", "member"))
    assert observe_release(told, {"public"}) == hidden(participation_seen_by=("server",))
    another = {"client", "client/*", "public"}
    assert observe_release(told, another) == told and next(iter(terms([told]))).told
    laplace = hidden(participation_seen_by=("server", "member"), mechanism="laplace")
    assert observe_release(laplace, another).sampling == "unknown"
    assert observe_release(laplace, {"public"}).sampling == "poisson"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (hidden(sampling="unknown"), "empty_round: redraw"),
        (hidden(sender="client/3"), "only when the client is"),
        (hidden(participation_seen_by=("client",)), "sees who takes part"),
        (hidden(), ""),
        (release(), ""),
    ],
)
def test_why_a_draw_is_not_credited_is_said(line: Release, why: str) -> None:
    found = explain_full_count(line, {"client", "client/*", "public"}, "add_or_remove_one")
    assert why in found and bool(found) == bool(why)
    assert "one is replaced" in explain_full_count(hidden(), {"public"}, "replace_one")
