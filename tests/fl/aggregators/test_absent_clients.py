"""Rules with fewer uploads than they need: refused, skipped, counted, and f as a share of who is there."""

from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.case.metrics import summary
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.robustness.shortage import Shortage, estimate_shortage
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import SimulatedConfig, load
from fedaudit.fl.aggregation.aggregator import RowRule
from fedaudit.fl.aggregation.assumed import count_attackers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.fl.aggregators.test_rules import RULES, rule
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, NormalisedNet, World, close, run, same

ASSUMING = [n for n in RULES if "f" in catalog.load("aggregators", n).Config.__dataclass_fields__]
ALL, ENOUGH, FEW = [0, 1, 2, 3, 4], [0, 1, 2, 4], [0, 4]  # client 3 holds nothing
SCRIPT = [(ALL, FEW), (ALL, ENOUGH), (ALL, FEW)]


def absent(name: str, of: str = "fedavg", **settings: Any) -> World:
    return run(method(of), aggregator=rule(name, **settings), script=SCRIPT)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ASSUMING)
def test_a_rule_needs_more_honest_uploads_than_malicious_ones(name: str) -> None:
    for f in range(6):
        made = rule(name, f=f)
        assert all(made.needs(n) > n for n in range(1, 2 * f + 1)), "f >= n / 2 is taken"
        assert any(made.needs(n) <= n for n in range(1, 30)), "nothing is ever enough"
    with pytest.raises(UserError, match=r"needs \d+ uploads a round, and 4 clients hold data"):
        run(method("fedavg"), aggregator=rule(name, f=2), script=EVERYONE)  # type: ignore[arg-type]


@pytest.mark.parametrize("outer", ["nnm", "bucketing", "clipping"])
def test_a_rule_around_a_rule_needs_what_that_one_needs(outer: str) -> None:
    made = rule(outer, rule={"name": "krum", "f": 3})
    assert made.needs(6) > 6
    with pytest.raises(UserError, match="the rule around it says what happens"):
        rule(outer, rule={"name": "krum", "too_few": "stop"})


@pytest.mark.parametrize("of", ["fedavg", "fedopt", "fednova", "scaffold", "feddyn", "stc", "rebafl"])
def test_a_round_that_is_skipped_leaves_running_statistics_as_they_were(of: str) -> None:
    world = run(
        method(of, rounds=1),  # type: ignore[arg-type]
        aggregator=rule("krum", f=1),
        script=[(ALL, FEW)],
        make=NormalisedNet,
    )
    assert world.history[0]["too_few"] == ["model"] and same(world.model, world.initial)


@pytest.mark.parametrize("name", ["krum", "trimmed_mean", "multi_krum", "nnm"])
def test_a_round_with_too_few_leaves_the_model_as_it_was_and_is_counted(name: str) -> None:
    world = absent(name, f=1, too_few="skip")
    assert [r.get("too_few") for r in world.history] == [["model"], None, ["model"]]
    scores = [r["test_loss"] for r in world.history]
    assert scores[1] == scores[2] and scores[0] != scores[1]
    assert summary(world.history)["rounds_too_few_uploads"] == 2
    assert "rounds_too_few_uploads" not in summary(run(method("fedavg")).history)  # type: ignore[arg-type]


def test_a_round_with_too_few_can_take_the_median_or_stop() -> None:
    two = absent("trimmed_mean", f=1, too_few="median")
    assert [bool(r.get("too_few")) for r in two.history][:2] == [True, False]
    pairs = [
        run(method("fedavg"), aggregator=made, script=[(ALL, FEW)])  # type: ignore[arg-type]
        for made in (rule("krum", f=1, too_few="median"), rule("median"))
    ]
    assert same(*pairs)
    with pytest.raises(UserError, match="needs 3 uploads a round, round 0 has 2"):
        absent("trimmed_mean", f=1, too_few="stop")
    with pytest.raises(UserError, match="too_few"):
        configure(catalog.load("aggregators", "krum"), {"too_few": "wait"}, "aggregator")


def test_with_enough_clients_what_becomes_of_too_few_changes_no_bit() -> None:
    made = [
        run(method("fedavg"), aggregator=rule("krum", f=1, too_few=w), script=EVERYONE)  # type: ignore[arg-type]
        for w in ("skip", "median", "stop")
    ]
    assert same(made[0], made[1]) and same(made[0], made[2])


def test_the_history_of_a_rule_outlives_a_round_that_is_skipped() -> None:
    class Remembering(RowRule):
        title = "Remembers"

        def needs(self, heard: int) -> int:
            return 3

        def combine(self, rows: Any, weights: Any, clients: Any, context: Any) -> Any:
            from fedaudit.fl.aggregation.aggregator import Combined

            count = context.state.get("count", 0) + 1
            seen.append(count)
            return Combined(change=rows[0].double(), kept={clients[0]: 1.0}, state={"count": count})

    seen: list[int] = []
    run(method("fedavg"), aggregator=Remembering(), script=[(ALL, ENOUGH), (ALL, FEW), (ALL, ENOUGH)])  # type: ignore[arg-type]
    assert seen == [1, 2]


@pytest.mark.parametrize("of", ["fedavg", "scaffold", "fedopt", "moon", "rebafl", "fedbuff"])
def test_methods_end_though_a_rule_lacks_clients_in_most_rounds(of: str) -> None:
    world = absent("krum", of, f=1)
    assert all(bool(torch.isfinite(v).all()) for v in world.model.values())


def test_f_may_be_a_share_of_those_who_are_heard() -> None:
    assert [count_attackers(0.2, n) for n in (1, 4, 5, 6, 10, 30)] == [1, 1, 1, 2, 2, 6]
    assert [count_attackers(0.1, 30), count_attackers(3, 30), count_attackers(0, 30)] == [3, 3, 0]
    by_share, by_number = (
        run(method("fedavg"), aggregator=rule("trimmed_mean", f=f), script=EVERYONE)  # type: ignore[arg-type]
        for f in (0.25, 1)
    )
    assert same(by_share, by_number)
    assert not close(by_share, run(method("fedavg"), script=EVERYONE))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="f"):
        rule("krum", f=0.5)


def find_shortage(folder: Path, federation: str, method: str) -> Shortage:
    path = folder / "config.yaml"
    path.write_text(f"federation: {{dataset: digits, clients: 10, {federation}}}\nmethod: {method}\n")
    config = load(path)
    assert isinstance(config, SimulatedConfig)
    case = SimulatedCase(config)
    choosing = not case.participation.selection.is_everybody
    return Shortage(
        config.federation,
        case.examples,
        lambda: case.population.counts,
        case.streams,
        case.training.rounds,
        choosing,
    )


@pytest.mark.nightly
def test_the_probability_that_a_rule_lacks_clients_is_the_binomial_one(tmp_path: Path) -> None:
    exact = sum(comb(10, n) for n in range(1, 4)) / sum(comb(10, n) for n in range(1, 11))  # fewer than 4
    shortage = find_shortage(tmp_path, "availability: {name: bernoulli, p: 0.5}", "{name: fedavg, rounds: 2}")
    half = catalog.load("availability", "bernoulli")()
    assert estimate_shortage(rule("krum", f=1), shortage.draw_heard(half)) == pytest.approx(exact, abs=0.025)
    [sentence] = shortage.warn_of_rule("krum", rule("krum", f=1), half)
    assert "krum has too few clients with a probability of 1" in sentence and "are skipped" in sentence


def test_the_probability_is_that_of_the_rounds_of_a_run(tmp_path: Path) -> None:
    """Seven of ten clients are away in eight of twenty rounds, and Krum needs four uploads."""
    shortage = find_shortage(tmp_path, "partition: iid", "{name: fedavg, rounds: 20}")
    away = configure(
        catalog.load("availability", "leaving"),
        {"clients": tuple(range(7)), "leave": 4, "back": 12},
        "federation.availability",
    )
    assert estimate_shortage(rule("krum", f=1), shortage.draw_heard(away)) == pytest.approx(8 / 20)
    [sentence] = shortage.warn_of_rule("krum", rule("krum", f=1), away)
    assert "with a probability of 40.0 % in a round" in sentence
    holders = find_shortage(
        tmp_path, "partition: {name: n_class_exhaustive, classes_per_client: 4}", "{name: fedavg, rounds: 20}"
    )
    named = configure(
        catalog.load("availability", "leaving"), {"label": 0, "leave": 4, "back": 12}, "federation.availability"
    )
    there = sorted(set(holders.draw_heard(named)))
    assert len(there) == 2 and there[-1] == 10  # whoever holds a zero is away
    choosing = find_shortage(tmp_path, "partition: iid", "{name: power_of_choice, rounds: 20}")
    [sentence] = choosing.warn_of_rule("krum", rule("krum", f=1), away)
    assert "with a probability of at least 40.0 %" in sentence
