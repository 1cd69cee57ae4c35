"""Every measure that an attack leaves as its result has a rule; the others are named as descriptions."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from fedaudit import attacks
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.measure import DESCRIPTIONS, MEASURES
from fedaudit.audit.verdict.judge import judge
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.reports.result import Outcome, Severity

POLICY = load_policy("default")
SOURCES = [p.read_text() for p in Path(attacks.__path__[0]).glob("*/*.py")]
EMITTED = sorted(
    m
    for m in MEASURES
    if any(re.search(rf'"{re.escape(m)}"', text) for text in SOURCES) or m.startswith("tpr_at_fpr")
)


@pytest.mark.parametrize("measure", EMITTED)
def test_a_result_has_a_rule_of_its_own_or_is_a_description(measure: str) -> None:
    named = [r.id for r in POLICY.rules for c in r.all if c.measure != "*" and fnmatchcase(measure, c.measure)]
    assert bool(named) != (measure in DESCRIPTIONS), f"{measure}: {named or 'no rule, and no description'}"


def test_descriptions_are_measures() -> None:
    assert set(DESCRIPTIONS) <= set(MEASURES)


FACTS = {  # seen, not guessed
    *("raw_examples_sent", "untrue_counts", "understated_bytes", "noise_on_some_rows", "unit_below_person"),
    *("vocabulary_of_private_text", "adapters_within_reach", "texts_in_two_places"),
    *("written_besides_training", "full_rank_adapters"),
}


def test_what_an_attack_gets_right_is_graded_beside_what_a_blind_adversary_does() -> None:
    alone = [
        r.id
        for r in POLICY.rules
        if any(fnmatchcase(m, c.measure) for c in r.all for m in EMITTED if c.measure != "*" and m not in FACTS)
        and all(c.statistic == "value" for c in r.all)
    ]
    assert alone == []


def shares(value: float, interval: tuple[float, float], control: str = "none") -> Evidence:
    return Evidence(
        measure="label_share_l1",
        value=value,
        unit="index",
        trials=20,
        interval=interval,
        baselines=(Baseline(name="global prior", value=0.98),),
        higher_is_worse=False,
        control=control,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("value", "interval", "severity"),
    [
        (0.2, (0.1, 0.3), Severity.HIGH),
        (0.346, (0.227, 0.521), Severity.MEDIUM),
        (0.9, (0.85, 0.95), Severity.LOW),
    ],
)
def test_recovered_proportions_of_labels_are_graded(
    value: float, interval: tuple[float, float], severity: Severity
) -> None:
    verdict = judge([shares(value, interval)], POLICY)
    assert (verdict.outcome, verdict.severity) == (Outcome.DEMONSTRATED, severity)


def test_proportions_no_better_than_a_guess_are_no_finding() -> None:
    assert judge([shares(0.9, (0.8, 1.0))], POLICY).outcome == Outcome.INCONCLUSIVE
