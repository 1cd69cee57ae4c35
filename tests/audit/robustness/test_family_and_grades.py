"""What an adaptive attacker preferred is run by itself; what attacks take and rules cost is rated alike."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.experiments import matrix as phase
from fedaudit.audit.robustness.dropout import measure_dropout
from fedaudit.audit.robustness.dropout_findings import list_dropout_findings
from fedaudit.audit.robustness.family import label, list_preferred
from fedaudit.audit.robustness.matrix_findings import (
    describe_certificate,
    describe_cost,
    grade,
    list_matrix_findings,
)
from fedaudit.audit.robustness.plan import IDLE, describe
from fedaudit.audit.robustness.table import give_advice
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel
from fedaudit.reports.result import Finding, Severity
from fedaudit.reports.robustness import Certificate, DefenceCost, MatrixCell, Robustness, TriedAdversary
from tests.audit.robustness.test_dropout import absence, histories
from tests.audit.robustness.test_matrix import TEXT

POLICY = load_policy("default")
TOLERABLE = 0.05
IPM, ALIE = {"name": "ipm", "tau": 0.1}, {"name": "alie", "z": 1.5}


def test_what_was_sent_or_nearly_in_a_quarter_of_the_rounds_is_preferred_three_at_most() -> None:
    fang, sign = {"name": "fang_krum"}, {"name": "min_max", "direction": "sign"}
    assert list_preferred([[IPM], [ALIE], [IPM], [fang]]) == [IPM, ALIE, fang]
    assert list_preferred([[IPM]] * 9 + [[ALIE]]) == [IPM]
    assert list_preferred([[ALIE, IPM, fang, sign]] * 2 + [[IPM]]) == [IPM, ALIE, fang]
    assert label({"name": "min_max", "direction": "unit", "times": 2.0}) == "min_max-unit-2.0"


def test_a_title_says_settings_in_words_and_of_a_family_how_many() -> None:
    assert describe({"name": "adaptive", "family": [IPM, ALIE], "ahead": 1}) == (
        "Adaptive attacker (family of 2, ahead 1)"
    )
    found = describe({"name": "adaptive_backdoor", "strengths": [0.5, 1.0], "clients": 4})
    assert found == "Adaptive backdoor (strengths 0.5 1.0)"
    assert describe({"name": "model_replacement", "constrain": True}) == "Model replacement (constrain on)"
    assert describe({"name": "sign_flip"}) == "Sign flip"


def test_an_attack_that_the_adaptive_attacker_preferred_has_a_cell_of_its_own(tmp_path: Path) -> None:
    plain = yaml.safe_load(TEXT)
    plain["matrix"] = {
        "adversaries": [{"name": "adaptive", "family": [{"name": "ipm", "tau": 16.0}, ALIE], "ahead": 1}],
        "malicious": [1],
    }
    run, config = RunDir.create(tmp_path), validate(Config, plain, "c.yaml")
    phase.run(run, config, lambda *_: None)
    found = EvidenceFolder(tmp_path).matrix
    assert found is not None and not found.not_run
    cells = {c.adversary: c for c in found.cells}
    assert all((tmp_path / f / "metrics.jsonl").is_file() for c in found.cells for f in c.folders)
    rounds = [r for f in cells["adaptive"].folders for r in RunDir(tmp_path / f).history()]
    sent = [m for r in rounds for m in (r["sent"], *r["near"])]
    assert len(rounds) == 2 and all(m in ({"name": "ipm", "tau": 16.0}, ALIE) for m in sent)
    assert set(cells) == {"adaptive", IDLE, *(label(m) for m in sent)}
    assert all(found.adversaries[label(m)].name == m["name"] for m in sent)


def lost(measure: str, value: float, idle: float | None = None) -> Evidence:
    nothing = [Baseline(name="nobody malicious", value=0.0)]
    if idle is not None:
        nothing.append(Baseline(name="the same clients doing nothing", value=idle, interval=(idle, idle)))
    interval = (value - 0.001, value + 0.001)
    return Evidence(
        measure=measure, value=value, unit="fraction", trials=1000, interval=interval, baselines=tuple(nothing)
    )


def cell(adversary: str, drop: float, idle: float = 0.0) -> MatrixCell:
    return MatrixCell(
        setting="fedavg-iid",
        rule="mean",
        family="mean",
        assumed=None,
        adversary=adversary,
        title=adversary,
        malicious=4,
        accuracy=0.9 - drop,
        clean=0.9,
        by_seed=[(0.9 - drop, 0.9)],
        evidence=[lost("accuracy_drop", drop, idle), lost("worst_class_drop", drop, idle)],
    )


def matrix(cells: list[MatrixCell]) -> Robustness:
    threat = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS)
    about: dict[str, Any] = {
        "source": "",
        "does": "harms it",
        "remedy": "beware",
        "threat": threat,
        "taxonomy": [],
        "aim": Aim.AVAILABILITY,
    }
    who = {c.adversary: TriedAdversary(name=c.adversary, title=c.title, **about) for c in cells}
    return Robustness(clients=20, chance=0.1, seeds=[7], cells=cells, adversaries=who)


def find(made: Robustness) -> Finding:
    """That of the first rule."""
    return POLICY.rate(list_matrix_findings(made, TOLERABLE)[0])


def test_the_finding_quotes_the_attack_that_took_most_whatever_stands_first() -> None:
    found = find(matrix([cell("sign_flip", 0.331), cell("adaptive", 0.795)]))
    assert found.severity is Severity.CRITICAL
    assert found.title.endswith("adaptive by 4 of 20 clients (20\u00a0%) harms it")
    assert {e.condition["attack"] for e in found.evidence} == {"adaptive"}
    assert found.reason == "At least 79.4\u00a0% of the answers are lost, and 5\u00a0% are tolerable."


@pytest.mark.parametrize("drop", [0.01, 0.03, 0.1, 0.81])
def test_what_is_lost_is_rated_alike_however_many_take_it(drop: float) -> None:
    taken = [cell("adaptive", drop).model_copy(update={"malicious": m}) for m in (1, 3, 6, 19)]
    found = [find(matrix([c])) for c in taken]
    assert len({f.severity for f in found}) == len({f.reason for f in found}) == 1
    assert [re.findall(r"\d+ of 20 clients \(\d+", f.title)[0] for f in found] == [
        "1 of 20 clients (5",
        "3 of 20 clients (15",
        "6 of 20 clients (30",
        "19 of 20 clients (95",
    ]


def test_what_the_same_clients_cost_by_doing_nothing_is_not_what_an_attack_takes() -> None:
    assert find(matrix([cell("label_flip", 0.110, idle=0.113)])).severity is Severity.NONE
    assert find(matrix([cell("label_flip", 0.110)])).severity is Severity.MEDIUM


def cost(drop: float, worst: float) -> DefenceCost:
    evidence = [lost("cost_of_defence", drop), lost("cost_of_worst_class", worst)]
    return DefenceCost(
        setting="fedavg-iid", rule="krum", assumed=4, accuracy=0.9 - drop, worst_class=0.5, evidence=evidence
    )


def find_cost(drop: float, worst: float) -> Finding:
    return POLICY.rate(describe_cost(cost(drop, worst), TOLERABLE))


@pytest.mark.parametrize("drop", [0.01, 0.03, 0.06, 0.692])
def test_a_rule_that_costs_as_much_as_an_attack_takes_is_rated_alike(drop: float) -> None:
    assert find_cost(drop, drop).severity is find(matrix([cell("adaptive", drop)])).severity


NEGATIVE = re.compile(r"(?<!\()-\d[\d.]* (points|%)")  # what a sentence says is lost, and is not


@pytest.mark.parametrize("drop", [-0.094, 0.094])
def test_what_is_lost_is_said_to_be_less_and_what_is_gained_more(drop: float) -> None:
    found = find_cost(drop, -drop).summary
    words = [("less", "more"), ("more", "less")][drop < 0]
    assert f"9.4 points {words[0]}" in found and f"9.4 points {words[1]}" in found
    absent = {("fedavg", 1.0): [0.8, 0.8, 0.8], ("fedavg", 0.5): [0.8 - drop] * 3}
    other = {("rebafl", 1.0): [0.8, 0.8, 0.8], ("rebafl", 0.5): [0.8, 0.8, 0.8]}
    made = list_dropout_findings(measure_dropout(absence(), histories(absent | other), [], []), TOLERABLE)
    texts = [f.summary for f in made]
    assert f"9.4 points {words[0]} (9.4 to 9.4) than with everybody there" in texts[0]
    assert f"it keeps 9.4 points {words[1]} (9.4 to 9.4) than fedavg" in texts[1]
    tried = matrix([cell("adaptive", 0.5), cell("adaptive", 0.2).model_copy(update={"rule": "krum"})])
    tried.costs = [cost(drop, drop)]
    [advice] = give_advice(tried)
    assert advice.endswith(f"; with nobody malicious it has 9.4 points {words[0]} (9.3 to 9.5) than the mean.")
    assert not any(NEGATIVE.search(text) for text in (found, *texts, advice))


def test_a_rule_that_costs_the_worst_class_alone_is_said_to() -> None:
    found = find_cost(0.0, 0.4)
    assert (
        found.severity is Severity.HIGH and "of the answers on the class that loses most are lost" in found.reason
    )
    assert "the rule itself costs answers" in found.title
    assert find_cost(0.0, 0.1).severity is Severity.LOW


def test_counts_that_the_server_believes_are_a_finding_of_their_own() -> None:
    changed = Evidence(measure="changed_by_counts", value=0.01, unit="share", trials=1000, interval=(0.005, 0.02))
    claimed = cell("count_inflation", 0.0)
    claimed.evidence.append(changed)
    rule, believed = map(POLICY.rate, list_matrix_findings(matrix([claimed]), TOLERABLE))
    assert rule.severity is Severity.NONE and believed.severity is Severity.HIGH
    assert believed.title == "fedavg-iid, rule mean: the server believes what clients claim to hold"
    claimed.evidence[-1] = replace(changed, value=0.0, interval=(0.0, 0.004))
    assert len(list_matrix_findings(matrix([claimed]), TOLERABLE)) == 1


def test_a_score_above_what_the_noise_allows_is_critical_and_one_below_is_nothing() -> None:
    words = {"setting": "fedavg-iid", "rule": "mean", "title": "Sign flip", "malicious": 1, "score": "errors"}
    numbers = {"seeds": 5, "clean": 0.1, "measured": 0.5, "interval": (0.4, 0.6)}
    found = [describe_certificate(Certificate(**words, **numbers, ceiling=c), 0) for c in (0.3, 0.45)]
    assert [f.severity for f in found] == [Severity.CRITICAL, Severity.NONE]
    assert "errors under Sign flip are more than the stated noise allows" in found[0].title


@pytest.mark.parametrize(("drop", "words"), [(0.0, ""), (0.03, "Low"), (0.1, "Medium"), (0.4, "High")])
def test_each_cell_and_each_cost_has_a_severity_of_its_own(drop: float, words: str) -> None:
    made = matrix([cell("adaptive", drop)])
    made.costs = [cost(drop, drop)]
    grade(made, TOLERABLE)
    assert (made.cells[0].severity, made.costs[0].severity) == (words, words)
