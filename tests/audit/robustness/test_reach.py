"""Reach: who moves a rule further than others, and runs in which these are the malicious ones."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from torch import Tensor

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.experiments import matrix as phase
from fedaudit.audit.robustness.plan import LED
from fedaudit.audit.robustness.reach import FURTHER, choose_leaders, measure_reach
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from tests.audit.robustness.test_matrix import TEXT

ALIKE = dict.fromkeys(range(8), 30.0)
HERE = "tests.audit.robustness.test_reach"


class Third(RowRule):
    """Third: believes one hospital alone."""

    title = "Hospital 3 decides"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        one = list(clients).index(3) if 3 in clients else 0
        return Combined(change=rows[one].double(), kept=dict.fromkeys(clients, 1.0))


class Quiet(Third):
    """Quiet: three quarters of its step are one hospital's."""

    title = "Hospital 3 weighs most"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        one = super().combine(rows, weights, clients, context)
        return Combined(change=0.75 * one.change + 0.25 * rows.double().mean(0), kept=one.kept)


@pytest.mark.parametrize("name", sorted({*catalog.names("aggregators")} - {"monna"}))
def test_a_rule_that_treats_clients_alike_has_no_leader(name: str) -> None:
    reach = measure_reach(catalog.load("aggregators", name)(), ALIKE)
    assert max(reach.values()) > 0
    for drawn in ([0, 5], [2, 7], [3, 4]):
        assert choose_leaders(reach, drawn) == ()


@pytest.mark.parametrize(("rule", "leader"), [("monna", 0), (f"{HERE}:Third", 3), (f"{HERE}:Quiet", 3)])
def test_a_client_that_decides_leads_whoever_was_drawn_without_it(rule: str, leader: int) -> None:
    reach = measure_reach(catalog.load("aggregators", rule)(), ALIKE)
    others = [k for k in ALIKE if k != leader]
    assert all(leader in choose_leaders(reach, [others[i], others[i + 1]]) for i in range(6))
    assert choose_leaders(reach, [leader, others[0]]) == ()


def test_under_the_mean_a_client_reaches_as_far_as_its_examples_weigh() -> None:
    reach = measure_reach(catalog.load("aggregators", "mean")(), {0: 10.0, 4: 30.0, 5: 60.0})
    assert [reach[k] / reach[0] for k in (4, 5)] == pytest.approx([3.0, 6.0], rel=0.2)
    assert choose_leaders(reach, [0]) == (5,) and choose_leaders(reach, [4]) == choose_leaders(reach, [5]) == ()
    assert FURTHER == 2.0


def test_nobody_drawn_and_nobody_heard_have_no_leader() -> None:
    assert measure_reach(catalog.load("aggregators", "median")(), {}) == {}
    assert choose_leaders({}, [1]) == choose_leaders({0: 1.0}, []) == ()


def run(folder: Path, rule: str) -> EvidenceFolder:
    plain = {**yaml.safe_load(TEXT), "seed": 9}  # whose malicious client is another than 3
    plain["matrix"] = {"adversaries": ["sign_flip"], "aggregators": [rule], "malicious": [1]}
    phase.run(RunDir.create(folder), validate(Config, plain, "c.yaml"), lambda *_: None)
    return EvidenceFolder(folder)


def test_a_matrix_tries_the_clients_that_a_draw_left_out_and_says_so(tmp_path: Path) -> None:
    found = run(tmp_path, f"{HERE}:Third").matrix
    assert found is not None and not found.not_run
    led = [c for c in found.cells if c.adversary.endswith(LED)]
    assert {c.rule.endswith("third") for c in led} == {True} and len(led) == 2
    assert all("by the clients that move the rule most" in c.title for c in led)


def test_a_matrix_whose_rules_treat_clients_alike_tries_nobody_else(tmp_path: Path) -> None:
    found = run(tmp_path, "median").matrix
    assert found is not None and not [c for c in found.cells if c.adversary.endswith(LED)]


class Rows(Third):
    """Rows: gives every upload in place of one change."""

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        return Combined(change=rows.double(), kept=dict.fromkeys(clients, 1.0))


class Bare(Third):
    """Bare: returns the change alone."""

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        return rows.double().mean(0)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("rule", "says"), [("Rows", "makes numbers of shape"), ("Bare", "must return Combined, got")]
)
def test_a_rule_that_breaks_its_contract_has_failed_and_does_not_pass_for_one_that_does_not_apply(
    tmp_path: Path, rule: str, says: str
) -> None:
    found = run(tmp_path, f"{HERE}:{rule}").matrix
    assert found is not None and found.not_run
    assert all(n.failed and says in n.reason and "\n" not in n.reason for n in found.not_run)
