"""Budgets: the worst client of each observer, never a sum over clients, rounded up."""

import cProfile
import math
import pstats
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution

from fedaudit.audit.accounting.accountant import Bound
from fedaudit.audit.accounting.accountants.exact import Exact
from fedaudit.audit.accounting.budget import SEES, SpentBudget, _find_costliest, budgets, highest_tpr, round_up
from fedaudit.audit.accounting.status import combine_status
from fedaudit.audit.accounting.units import per_sender
from fedaudit.audit.accounting.verify import DECLARED
from fedaudit.audit.noise_audit.findings import list_refuted_bounds
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import Release
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.bound_text import describe_bound, label_bound
from tests.audit.accounting.test_exact import release

EXACT = [PluginSpec(name="exact")]
ALL = ("server", "client", "public")


def declared(found: Sequence[SpentBudget]) -> list[PrivacyBound]:
    """Their bounds, where nobody could check the ledger."""
    return combine_status(found, DECLARED, (), ())


def towards(observer: str, releases: list[Release], unit: str = "client") -> SpentBudget:
    found = budgets(releases, EXACT, 1e-5)
    return next(b for b in found if b.observer == observer and b.unit == unit)


def test_the_worst_client_counts_and_clients_are_not_summed() -> None:
    one = [release(1.0, sender="client/0", observers=ALL)]
    two = [release(1.0, sender="client/1", observers=ALL, round=t) for t in range(2)]
    assert towards("server", one).epsilon_upper == 4.38
    both = towards("server", one + two)
    assert both == towards("server", two) and both.epsilon_upper == 6.58 and both.releases == 2


def test_each_observer_is_charged_for_what_it_reads() -> None:
    clear = release(mechanism="none", kind="label_counts", observers=("server",))
    noised = release(1.0, observers=ALL)
    assert towards("server", [clear, noised]).epsilon_upper == math.inf
    assert towards("server", [clear, noised]).spoiled_by == ["label_counts"]
    assert "noised releases alone would cost 4.38" in towards("server", [clear, noised]).note
    assert "alone" not in towards("server", [clear]).note
    assert towards("another client", [clear, noised]).epsilon_upper == 4.38
    assert towards("public", [clear, noised]).epsilon_upper == 4.38


def test_a_server_reads_its_own_broadcasts_but_no_relay() -> None:
    assert towards("server", [release(1.0, observers=("client", "public"))]).epsilon_upper == 4.38
    relayed = [release(1.0, observers=("client/3",))]
    assert towards("server", relayed).epsilon_upper == math.inf
    assert towards("another client", relayed).epsilon_upper == 4.38


def test_a_line_for_every_sender_counts_for_each() -> None:
    everyone = release(mechanism="none", kind="num_examples", sender="client/*", observers=ALL)
    noised = [release(1.0, sender=f"client/{k}", observers=ALL) for k in range(3)]
    groups = per_sender([everyone, *noised])
    assert {k: len(v) for k, v in groups.items()} == {f"client/{k}": 2 for k in range(3)}
    assert per_sender([everyone]) == {"client/*": [everyone]}
    assert towards("public", [everyone, *noised]).spoiled_by == ["num_examples"]


def test_replacing_costs_twice_the_sensitivity_of_removing() -> None:
    removed = release(2.0, observers=ALL)
    replaced = release(2.0, observers=ALL, adjacency="replace_one")
    mixed = towards("server", [removed, replaced])
    assert mixed.adjacency == "replace_one"
    # z = 2 under removal is z = 1 under replacement: 1/1^2 + 1/2^2 = 1/0.8944^2
    expected = towards("server", [release(1 / math.sqrt(1.25), observers=ALL)])
    assert mixed.epsilon_upper == expected.epsilon_upper


def test_noise_for_one_record_bounds_nothing_for_its_client() -> None:
    record = release(1.0, observers=ALL, unit="record")
    client = release(4.0, observers=ALL)
    both = [record, client]
    assert towards("server", both, "client").epsilon_upper == math.inf
    assert "for one record only" in towards("server", both, "client").spoiled_by[0]
    # for a record the client's own release is a replacement, z = 2: 1/1^2 + 1/2^2
    expected = towards("server", [release(1 / math.sqrt(1.25), observers=ALL)])
    assert towards("server", both, "record").epsilon_upper == expected.epsilon_upper


def test_steps_noised_for_a_record_cost_a_client_nothing_where_their_message_is_noised_for_it() -> None:
    steps = release(1.0, unit="record", sampling="poisson", sample_rate=0.2, coin="each", observers=ALL)
    whole, sum_of_all = release(1.0, observers=ALL), release(1.0, sender="client/*", observers=ALL)
    for lines in ([steps, whole], [whole, steps], [steps, whole, steps, whole]):
        assert (
            towards("public", lines).epsilon_upper
            == towards("public", [x for x in lines if x == whole]).epsilon_upper
        )
    for lines in (
        [steps, sum_of_all],  # which says nothing of the single message
        [steps, steps, whole],  # two messages, of which one is noised for its client
        [steps, release(1.0, observers=ALL, round=1)],
        [replace(steps, coin=""), whole],  # another release, and none of steps
    ):
        assert towards("public", lines).epsilon_upper == math.inf
    assert towards("public", [steps, replace(whole, observers=("server",))]).epsilon_upper == math.inf


def test_only_an_observer_who_cannot_see_who_takes_part_meets_an_amplified_bound() -> None:
    lines = [
        release(
            1.0,
            sender="client/*",
            observers=ALL,
            round=t,
            sampling="poisson",
            sample_rate=0.1,
            participation_seen_by=("server",),
        )
        for t in range(100)
    ]
    auto = [PluginSpec(name="auto", settings={"cross_check": False})]
    found = {b.observer: b for b in budgets(lines, auto, 1e-5)}
    assert found["public"].epsilon_upper == found["another client"].epsilon_upper == 7.05
    assert found["public"].accountant == "PLD" and "probability 0.1" in found["public"].assumes
    assert found["server"].accountant == "Exact Gaussian composition"
    assert found["server"].epsilon_upper == towards("server", lines).epsilon_upper == 91.9


def test_a_client_whose_releases_another_one_made_too_is_not_accounted_for_twice() -> None:
    def group(*zs: float) -> list[Release]:
        return [release(z, round=t) for t, z in enumerate(zs)]

    groups = {"client/0": group(1, 2), "client/1": group(1, 1, 2), "client/2": group(3), "client/3": group(2, 1)}
    assert set(_find_costliest(groups)) == {"client/1", "client/2"}


def test_a_client_with_fewer_releases_of_less_noise_may_be_the_worst() -> None:
    often = [release(z, sender="client/0", observers=ALL, round=t) for t, z in enumerate((8, 8, 8, 1))]
    seldom = [release(z, sender="client/1", observers=ALL, round=t) for t, z in enumerate((8, 1, 1))]
    assert towards("server", often + seldom).epsilon_upper == towards("server", seldom).epsilon_upper
    assert towards("server", seldom).epsilon_upper > towards("server", often).epsilon_upper


def test_releases_of_one_round_and_of_two_are_not_one_cost() -> None:
    told = {"sender": "client/*", "sampling": "poisson", "sample_rate": 0.1, "participation_seen_by": ("server",)}
    one, two = ([release(1.0, round=t, **told) for t in rounds] for rounds in ((0, 0), (0, 1)))
    assert set(_find_costliest({"client/0": one}).values()) != set(_find_costliest({"client/0": two}).values())


def many(senders: int, different: int, rounds: int = 3) -> list[Release]:
    """As many senders as given, of so many multipliers, that release in every round."""
    zs = [1 + k % different / different for k in range(senders)]
    return [
        release(z, sender=f"client/{k}", observers=ALL, round=t) for k, z in enumerate(zs) for t in range(rounds)
    ]


def calls(senders: int, different: int) -> int:
    """How many functions are called for their budgets: a measure of work that no machine changes."""
    releases, watch = many(senders, different), cProfile.Profile()
    watch.runcall(budgets, releases, EXACT, 1e-5)
    return int(pstats.Stats(watch).total_calls)  # type: ignore[attr-defined]


def test_every_distinct_cost_is_composed_once_however_many_senders_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    composed: list[int] = []
    whole = Exact.compose

    def counted(self: Exact, releases: Sequence[Release], delta: float) -> Bound:
        composed.append(len(releases))
        return whole(self, releases, delta)

    monkeypatch.setattr(Exact, "compose", counted)
    for senders, different in ((40, 4), (400, 4), (400, 40), (400, 400)):
        composed.clear()
        assert budgets(many(senders, different), EXACT, 1e-5)[0].epsilon_upper == 8.39
        assert len(composed) == different + 1  # three observers read the same; the worst is replaced, too


@pytest.mark.nightly
def test_work_grows_with_senders_and_with_distinct_costs_in_proportion() -> None:
    calls(2, 2)  # imports
    for few, more in ((calls(100, 5), calls(400, 5)), (calls(60, 60), calls(240, 240))):
        assert more <= 4.2 * few


def test_many_costs_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[object] = []

    def here(function: Any, seconds: float, gigabytes: float, *args: Any) -> Any:
        children.append(function)
        return function(*args)

    monkeypatch.setattr("fedaudit.audit.accounting.budget.call", here)
    monkeypatch.setattr(
        "fedaudit.audit.accounting.accountant.call", lambda function, _, __, *args: function(*args)
    )
    pure = [release(2 + k, sender=f"client/{k}", mechanism="laplace", observers=ALL, count=2) for k in range(6)]
    auto = [PluginSpec(name="auto", settings={"cross_check": False})]
    assert budgets(pure, auto, 1e-5)[0].epsilon_upper == 1.0 and len(children) == 1


def test_a_bound_past_its_cap_is_no_statement() -> None:
    own = {"seconds": 0.01, "gigabytes": 7.0}  # a child of its own is stopped
    short = [PluginSpec(name="pld", settings=own)]
    found = budgets([release(1.0, observers=ALL)], short, 1e-5)[0]
    assert found.inconclusive and found.epsilon_upper == math.inf and not found.spoiled_by
    (bound,) = declared([found])
    assert label_bound(bound) == "none: left open" and "longer than 0.01 s" in describe_bound(bound)
    assert list_refuted_bounds([bound]) == []


@pytest.mark.parametrize("releases", [[], [release(observers=())], [release(observers=ALL, count=0)]])
def test_an_observer_of_whom_no_line_speaks_has_no_bound_and_the_reason_is_said(releases: list[Release]) -> None:
    found = budgets(releases, EXACT, 1e-5)
    assert [(b.observer, b.epsilon_upper) for b in found] == [(o, math.inf) for o in SEES]
    assert {describe_bound(b) for b in declared(found)} == {"none: nothing is accounted for"}
    assert list_refuted_bounds(declared(found)) == []


def test_a_bound_says_what_it_assumes_and_what_it_excludes() -> None:
    b = towards("server", [release(4.0, observers=ALL, clipped="on the whole vector")])
    assert "1 release of one client" in b.assumes and "multiplier 4" in b.assumes
    assert "clipped on the whole vector" in b.assumes
    assert "At 1 % false positives" in b.note
    loose = towards("server", [release(0.1, observers=ALL)])
    assert "excludes no membership attack" in loose.note


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4.377178, 4.38),
        (4.38, 4.38),
        (0.750977, 0.751),
        (1189.7767, 1190.0),
        (5.0004265e9, 5.01e9),
        (1.1, 1.1),
        (0.0, 0.0),
        (math.inf, math.inf),
        (3.1075e-5, 3.11e-5),
    ],
)
def test_epsilon_is_rounded_up(value: float, expected: float) -> None:
    assert round_up(value) == expected and round_up(value) >= value


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"), [(1.0, 1e-5, 0.0272), (3.0, 0.01, 0.2109), (8.0, 1e-5, 0.9997)]
)
def test_the_ceiling_of_membership_attacks(epsilon: float, delta: float, expected: float) -> None:
    assert highest_tpr(epsilon, delta, 0.01) == pytest.approx(expected, abs=6e-5)


def test_no_privacy_loss_leaves_only_guessing() -> None:
    assert highest_tpr(0.0, 0.0, 0.01) == pytest.approx(0.01)
    assert highest_tpr(1e6, 1e-5, 0.01) == 1.0


@pytest.mark.nightly
@pytest.mark.parametrize(("rate", "count"), [(0.5, 1), (0.1, 30), (0.9, 1)])
def test_a_client_more_or_less_of_a_fixed_number_is_one_replaced(rate: float, count: int) -> None:
    """Somebody else is drawn in its place; the full noise at its own sensitivity said 4.38 of at least 8.9."""
    fixed = {"sampling": "fixed_without_replacement", "sample_rate": rate, "participation_seen_by": ("server",)}
    lines = [release(1.0, round=t, sender="client/*", observers=ALL, **fixed) for t in range(count)]
    auto = [PluginSpec(name="auto", settings={"cross_check": False})]
    of = {b.observer: b for b in budgets(lines, auto, 1e-5)}
    one = privacy_loss_distribution.from_gaussian_mechanism(0.5, sampling_prob=rate)  # a pair that reaches it
    truth = one.self_compose(count).get_epsilon_for_delta(1e-5)
    assert of["public"].adjacency == "replace_one"
    assert truth <= of["public"].epsilon_upper < 1.12 * truth
