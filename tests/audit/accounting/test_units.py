"""Units: a record is in what all of its holders released, in every copy, and its bound composes that."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from benchmarks.privacy.mechanisms import lower_value
from fedaudit.audit.accounting.budget import SpentBudget, budgets
from fedaudit.audit.accounting.units import as_group
from fedaudit.audit.accounting.verify import DECLARED, ONE_HOLDER, Verified, verify
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases import simulate
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.partition import Index, OwnedLabels
from fedaudit.fl.ledger import EACH, Release, read
from fedaudit.fl.recording.recorder import manifest
from tests.audit.accounting.test_exact import release
from tests.audit.tiny import HERE, Thirds

ALL = ("server", "client", "public")
EXACT = [PluginSpec(name="exact")]
AUTO = [PluginSpec(name="auto", settings={"cross_check": False})]


def steps(client: int, round: int = 0, **fields: object) -> Release:
    """One round of DP-SGD with z = 1, q = 0.1 and 40 steps."""
    how = {"sampling": "poisson", "sample_rate": 0.1, "coin": EACH, "participation_seen_by": (), "count": 40}
    given = {"sender": f"client/{client}", "round": round, "unit": "record", "observers": ALL, **how, **fields}
    return release(1.0, **given)  # type: ignore[arg-type]


def held(*groups: dict[int, int]) -> Verified:
    """A verified ledger of a federation in which these clients hold a record together: client -> copies."""
    return Verified(overlaps=frozenset(frozenset(g.items()) for g in groups))


def bound(
    releases: Sequence[Release],
    known: Verified = Verified(),  # noqa: B008
    unit: str = "record",
    by: Sequence[PluginSpec] = EXACT,
) -> SpentBudget:
    return next(b for b in budgets(releases, by, 1e-5, known) if (b.observer, b.unit) == ("server", unit))


def test_a_record_that_four_clients_hold_costs_what_one_client_of_four_times_the_steps_costs() -> None:
    ledger = [steps(k) for k in range(6)]
    alone, shared = bound(ledger, by=AUTO), bound(ledger, held({0: 1, 1: 1}, {0: 1, 2: 1, 3: 1, 5: 1}), by=AUTO)
    assert alone.epsilon_upper == 4.69
    assert shared.epsilon_upper == bound([steps(0, count=160)], by=AUTO).epsilon_upper
    # by a likelihood-ratio test of the pair, which no accountant made: 160 draws, each of its own
    least = lower_value([steps(0, t, coin="", count=1) for t in range(160)], 1e-5)
    assert 8.5 < least <= shared.epsilon_upper < 1.05 * least
    assert "held by 4 clients" in shared.assumes and shared.releases == 160


PRIVATE = {"name": "dp_sgd", "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 20}


@cache
def run_with(partition: str) -> list[dict[str, Any]]:
    """What two rounds of DP-SGD cost, by phases: four clients, whose records the partition deals."""
    federation = {
        "dataset": f"{HERE}:TinyImages",
        "clients": 4,
        "availability": "full",
        "partition": partition,
        "model": {"name": f"{HERE}:Linear", "width": 5},
    }
    method = {"name": "fedavg", "rounds": 1, "weighting": "uniform"}
    settings = {
        "federation": federation,
        "method": method,
        "protections": [PRIVATE],
        "record": "last",
        "accountants": [{"name": "auto", "cross_check": False}],
    }
    config, run = validate(Config, settings, "config"), RunDir(Path(mkdtemp()))
    simulate.run(run, config, lambda *_: None)
    releases = read(run.ledger)
    verified = verify(open_case(run, config), releases, manifest(run.artifacts))
    return [b.model_dump(mode="json") for b in budgets(releases, config.accountants, config.delta, verified)]


class Everything(Thirds):
    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return [np.arange(len(labels.y), dtype=np.int64) for _ in range(clients)]


def test_a_run_whose_clients_hold_the_same_records_states_what_they_lose_together() -> None:
    apart, same = run_with(f"{HERE}:Thirds"), run_with(f"{__name__}:Everything")
    least = lower_value([steps(0, t, coin="", count=1) for t in range(80)], 1e-5)
    assert {b["unit"] for b in (*apart, *same)} == {"record"}
    assert all(b["epsilon_upper"] < least <= c["epsilon_upper"] for b, c in zip(apart, same, strict=True))
    assert "held by 4 clients" in same[0]["assumes"] and same[0]["assumed"] == []


def test_a_record_of_one_client_alone_costs_no_more_than_before() -> None:
    ledger = [release(1.0, sender=f"client/{k}", unit="record", observers=ALL) for k in range(4)]
    assert bound(ledger) == bound(ledger, held()) and bound(ledger).epsilon_upper == 4.38
    assert "hold" not in bound(ledger).assumes


def test_holders_that_released_less_cost_less_and_the_worst_record_counts() -> None:
    ledger = [release(1.0, sender=f"client/{k}", unit="record", observers=ALL) for k in (0, 1, 2, 2, 2, 2, 2)]
    assert bound(ledger, held({0: 1, 1: 1})).epsilon_upper == bound(ledger).epsilon_upper  # client 2 alone
    assert bound(ledger, held({0: 1, 2: 1})).epsilon_upper == bound([ledger[0]] * 6).epsilon_upper
    assert bound(ledger, held({0: 1, 9: 1})).epsilon_upper == bound(ledger).epsilon_upper  # 9 was never heard


def test_copies_at_one_client_are_a_group() -> None:
    once = [release(1.0, unit="record", observers=ALL)]
    assert (
        bound(once, held({0: 3})).epsilon_upper
        == bound([release(1 / 3, unit="record", observers=ALL)]).epsilon_upper
    )
    assert "held 3 times by one client" in bound(once, held({0: 3})).assumes


def test_copies_with_a_coin_each_are_never_credited_with_more_than_they_earn() -> None:
    """Two copies, q = 0.1, z = 2: the true pair is (1-q)^2 N(0) + 2q(1-q) N(1) + q^2 N(2) against N(0)."""
    from scipy.stats import norm

    q, z, x = 0.1, 2.0, np.linspace(-40, 45, 400_001)
    weights = ((1 - q) ** 2, 2 * q * (1 - q), q**2)
    inside = sum(w * norm.pdf(x, i, z) for i, w in enumerate(weights))
    outside = norm.pdf(x, 0, z)
    stated = bound([steps(0, noise_std=z, count=1)], held({0: 2}), by=AUTO).epsilon_upper
    for p, other in ((inside, outside), (outside, inside)):
        delta = np.trapezoid(np.maximum(p - math.exp(stated) * other, 0), x) if hasattr(np, "trapezoid") else 0
        assert delta <= 1e-5
    alone = bound([steps(0, noise_std=z, count=1)], by=AUTO).epsilon_upper
    assert stated > 1.5 * alone
    assert as_group(steps(0), 2).copies == 2
    many = as_group(steps(0), 100)  # all count as drawn where one is
    assert (many.copies, many.sensitivity) == (1, 100.0) and many.sample_rate == pytest.approx(1 - 0.9**100)


def test_noise_that_holders_make_together_hides_all_their_terms_at_once() -> None:
    together = [
        release(4.0, sender=f"client/{k}", unit="record", observers=("public",), aggregated=4, shares=8)
        for k in range(8)
    ]
    alone = next(b for b in budgets(together, EXACT, 1e-5) if b.observer == "public")
    both = next(b for b in budgets(together, EXACT, 1e-5, held({0: 1, 3: 1})) if b.observer == "public")
    assert alone.epsilon_upper == bound([release(4.0, unit="record", observers=ALL)]).epsilon_upper
    assert (
        both.epsilon_upper == bound([release(2.0, unit="record", observers=ALL)]).epsilon_upper
    )  # not 4 / sqrt(2)


def test_noise_on_the_mean_of_all_clients_hides_every_holder_at_once() -> None:
    mean = [release(4.0, sender="client/*", observers=ALL, participation_seen_by=())]
    client, record = bound(mean, held({0: 1, 1: 1}), "client"), bound(mean, held({0: 1, 1: 1}))
    assert client.epsilon_upper == bound([release(4.0, observers=ALL)], unit="client").epsilon_upper
    # replaced at both: twice the sensitivity of each
    assert record.epsilon_upper == bound([release(1.0, observers=ALL)], unit="client").epsilon_upper


def test_where_clients_hold_records_together_noise_per_client_is_bounded_per_record_too() -> None:
    ledger = [release(2.0, sender=f"client/{k}", observers=ALL) for k in range(3)]
    assert {b.unit for b in budgets(ledger, EXACT, 1e-5)} == {"client"}
    assert {b.unit for b in budgets(ledger, EXACT, 1e-5, held({0: 2}))} == {"client"}  # its client hides both
    shared = held({0: 1, 1: 1, 2: 1})
    assert bound(ledger, shared, "client").epsilon_upper == bound(ledger, unit="client").epsilon_upper
    assert (
        bound(ledger, shared).epsilon_upper
        == bound([release(1 / math.sqrt(3), observers=ALL)], unit="client").epsilon_upper
    )


def test_an_overlap_that_nobody_told_is_assumed_away_in_words() -> None:
    ledger = [release(1.0, unit="record", observers=ALL)]
    assert bound(ledger, DECLARED).assumed == [ONE_HOLDER]
    assert bound(ledger, Verified()).assumed == []
    of_client = bound([release(1.0, observers=ALL)], DECLARED, "client")
    assert of_client.assumed == []  # a client is what it sent, whoever holds the same


def test_work_grows_with_the_records_and_not_with_their_pairs() -> None:
    """Every record lies with another pair of 60 alike clients: one cost, composed once."""
    ledger = [steps(k) for k in range(60)]
    pairs = [{i: 1, j: 1} for i in range(60) for j in range(i)]
    assert bound(ledger, held(*pairs)).epsilon_upper == bound(ledger, held({0: 1, 1: 1})).epsilon_upper


def test_a_person_is_in_what_all_its_records_are_in_and_its_bound_is_beside_that_of_a_record() -> None:
    """A patient with two notes costs 18.5 where one note costs 8."""
    ledger = [steps(0, noise_std=0.936, count=100), steps(1, noise_std=0.936, count=100)]
    named = Verified(persons=frozenset({frozenset({(0, 2)}), frozenset({(1, 1)})}))
    person, record = (bound(ledger, named, unit, AUTO) for unit in ("person", "record"))
    assert (person.epsilon_upper, record.epsilon_upper) == (18.5, 8.0)
    assert "of one person in the ledger; with 2 records at 1 client" in person.assumes
    everywhere = Verified(persons=frozenset({frozenset({(0, 2), (1, 1)})}))
    more = bound(ledger, everywhere, "person", AUTO)
    assert more.epsilon_upper > person.epsilon_upper and "with 3 records at 2 clients" in more.assumes
    assert {b.unit for b in budgets(ledger, EXACT, 1e-5, Verified())} == {"record"}  # data that name nobody


def test_noise_of_a_client_s_own_zeroes_it_out_and_replacing_it_stands_beside() -> None:
    ledger = [release(2.0, round=t, observers=ALL) for t in range(4)]
    found = bound(ledger, unit="client")
    assert (found.adjacency, found.epsilon_upper, found.replaced) == ("zero_out", 4.38, 10.0)
    mean = [release(2.0, round=t, sender="client/*", observers=ALL) for t in range(4)]
    shared = bound(mean, unit="client")
    assert (shared.adjacency, shared.replaced) == ("add_or_remove_one", None)


def test_that_a_cohort_is_hidden_from_its_members_is_taken_on_trust() -> None:
    hidden = {"sender": "client/*", "sampling": "poisson", "sample_rate": 0.1, "observers": ("client", "public")}
    ledger = [release(1.0, participation_seen_by=("server",), **hidden)]
    found = budgets(ledger, AUTO, 1e-5, Verified(cohort="that it is hidden"))
    assert {b.observer: b.assumed for b in found if b.releases} == {
        "server": [],
        "another client": ["that it is hidden"],
        "public": [],
    }
