"""Findings: the sentence quotes what was graded, one power, one order, one way to a severity."""

import dataclasses
import itertools
import random
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.measure import MEASURES, find_measure
from fedaudit.audit.accounting.lint import check
from fedaudit.audit.robustness.lints import LINTS
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.accounts import Contradiction, Linted, NoiseSubject, make_bound_subjects
from fedaudit.audit.verdict.findings import Attacked, describe_evidence, write_headline
from fedaudit.audit.verdict.judge import Fact, judge, judge_subject
from fedaudit.audit.verdict.policy import Condition, GradingPolicy, Rule, load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.document import compose
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult, NoiseAuditRecord, Outcome, Severity, worst_first
from fedaudit.reports.section import Heading, Table
from tests.audit.accounting.test_lint import PLANTED
from tests.reports.sample import make_question, result

ROOT = Path(__file__).parents[3]
POLICY = load_policy("default")
CARD = {
    "title": "Attack",
    "learns": "something",
    "source": "a paper",
    "threat": {"position": "server", "conduct": "honest_but_curious", "knows": []},
    "reads": ["model_delta"],
    "does_not_show": "more",
    "remedy": "noise",
}


def attacked(*evidence: Evidence) -> Attacked:
    found = [dataclasses.asdict(e) for e in evidence]
    return Attacked({"name": "attack", "card": CARD, "status": "ran", "reason": "", "evidence": found})


def beyond(name: str, shift: float, **more: Any) -> Evidence:
    """Evidence of a measure that is `shift` worse than its baseline, and known exactly."""
    row = find_measure(name)
    blind = 0.0 if row.higher_is_worse else 1.0
    value = blind + shift if row.higher_is_worse else blind - shift
    fields: dict[str, Any] = {
        "measure": name,
        "value": value,
        "unit": row.unit,
        "trials": 100,
        "interval": (value, value),
        "baselines": (Baseline(name="blind", value=blind),),
        "higher_is_worse": row.higher_is_worse,
        "condition": {"kind": "here"},
    }
    return Evidence(**(fields | more))


def read_by(condition: Condition) -> list[str]:
    """The measures that can meet a condition."""
    return [
        name
        for name, row in MEASURES.items()
        if fnmatchcase(name, condition.measure)
        and (not condition.units or row.unit in condition.units)
        and (row.higher_is_worse or condition.statistic == "excess")
    ]


def threshold(condition: Condition) -> float:
    least = condition.above if condition.at_least is None else condition.at_least
    assert least is not None
    return least


def first(severity: Severity, shifts: dict[str, float]) -> Rule:
    """Of the rules that these measures meet, one of this severity: the policy's first."""
    for rule in POLICY.rules:
        met = [any(shifts.get(n, -1.0) >= threshold(c) for n in read_by(c)) for c in rule.all]
        if rule.severity == severity and all(met):
            return rule
    raise AssertionError("no rule is met")


# Rules about attacks, each with every choice of measures that can meet it
GRADED = [
    pytest.param(rule, names, id=f"{rule.id}-{'-'.join(names)}")
    for rule in POLICY.rules
    for names in itertools.product(*map(read_by, rule.all))
]


def at(measure: str, n: int, leaks: bool) -> Evidence:
    """Evidence of n samples that is clear of its baseline, or has too few trials for that."""
    row = find_measure(measure)
    return Evidence(
        measure=measure,
        value=0.6,
        unit=row.unit,
        trials=200 if leaks else 8,
        interval=(0.55, 0.65) if leaks else (0.2, 0.9),
        baselines=(Baseline(name="blind", value=0.5),),
        condition={"kind": "here", "n": n, "origin": "recorded"},
    )


@pytest.mark.parametrize("seed", range(30))
def test_of_larger_groups_than_any_measure_showed_something_for_nothing_is_said(seed: int) -> None:
    draw = random.Random(seed)
    sizes, names = draw.sample([1, 2, 4, 10, 26, 80], 4), ["auc", "tpr_at_fpr_0.01", "linkage_rank1"]
    curve = [at(name, n, draw.random() < 0.4) for n in sizes for name in names]
    curve.append(at("auc", sizes[0], True))
    draw.shuffle(curve)
    found = judge_subject(attacked(*curve), POLICY)
    largest = max(int(e.condition["n"]) for e in curve if e.trials == 200)
    said = re.findall(r"\bn(?:| at which it was seen to beat guessing) (?:=|is) (\d+)", found.summary)
    assert max(map(int, said)) == largest, found.summary
    assert f"The largest n at which it was seen to beat guessing is {largest} (" in found.summary


def test_where_no_n_was_seen_to_leak_none_is_named() -> None:
    text = judge_subject(attacked(at("auc", 1, False), at("auc", 5, False)), POLICY).summary
    assert "guessing" not in text and "no n" not in text.lower()


@pytest.mark.sample(40)
@pytest.mark.parametrize(("rule", "names"), GRADED)
def test_the_sentence_quotes_what_the_rule_read_whatever_else_was_measured(
    rule: Rule, names: tuple[str, ...]
) -> None:
    asked = [(n, threshold(c) + 1e-6) for n, c in zip(names, rule.all, strict=True)]
    shifts = {n: max(shift for other, shift in asked if other == n) for n, _ in asked}
    graded = [beyond(n, shift) for n, shift in shifts.items()]
    nothing = [beyond(n, 0.0) for n in MEASURES if n not in names]
    finding = judge_subject(attacked(*nothing, *graded, *nothing), POLICY)
    assert (
        finding.reason.startswith(f"Rule {first(rule.severity, shifts).id} ")
        and finding.severity == rule.severity
    )
    assert finding.summary.startswith(". ".join(map(describe_evidence, graded)))
    assert write_headline([finding], []).sentence.endswith(finding.summary)


def test_every_rule_is_about_measures_or_facts_that_exist() -> None:
    facts = {
        "accountants_disagree",
        "claim_refuted",
        "raw_examples_sent",
        "above_certified",
        "untrue_counts",
        "understated_bytes",
        "noise_on_some_rows",
        "vocabulary_of_private_text",
        "unit_below_person",
        "adapters_within_reach",
        "texts_in_two_places",
        "written_besides_training",
        "full_rank_adapters",
    }
    facts |= {"absence_drop", "class_lost"}
    facts |= {f"lint_{name.partition(' ')[0]}" for name in PLANTED} | {f"lint_{name}" for name in LINTS}
    for rule in POLICY.rules:
        for condition in rule.all:
            assert read_by(condition) or any(fnmatchcase(f, condition.measure) for f in facts), rule.id
            named = read_by(condition) if condition.measure != "*" else []
            assert all(find_measure(name).harm for name in named), rule.id  # what was lost, never to how many
    assert len(GRADED) > 40


REASSURING = re.compile(r"\b[Nn]othing (?:was|beyond)|\b[Nn]o leak\b|\b[Nn]ot demonstrated\b|\bshowed nothing\b")


@pytest.mark.parametrize("trials", [4, 1000])
@pytest.mark.parametrize("name", MEASURES)
def test_no_sentence_reassures_where_any_measure_is_clear_of_its_baselines(name: str, trials: int) -> None:
    shown, silent = beyond(name, 0.3, trials=trials), beyond("auc", 0.0, trials=1000)
    planted = beyond("auc", 0.9, control="positive")
    finding = judge_subject(attacked(silent, shown, planted), POLICY)
    assert finding.outcome in (Outcome.DEMONSTRATED, Outcome.INCONCLUSIVE), finding.reason
    answered = make_question("membership", "server", "local_model", State.BOUNDED, "")
    headline = write_headline([finding], [answered]).sentence
    said = f"{finding.title} {finding.summary} {finding.reason} {headline}"
    assert not REASSURING.search(said), said
    assert finding.rule or find_measure(name).words.lower() in finding.summary.lower(), finding.summary
    spared = judge_subject(attacked(silent, beyond(name, 0.0, trials=trials), planted), POLICY)
    assert REASSURING.search(f"{spared.title} {spared.reason}"), spared.reason


def test_where_no_rule_holds_the_most_telling_measure_is_quoted() -> None:
    planted = beyond("auc", 0.9, control="positive")
    finding = judge_subject(attacked(beyond("rank5", 0.0), beyond("auc", 0.0), planted), POLICY)
    assert finding.outcome is Outcome.NOT_DEMONSTRATED and finding.summary.startswith("AUC 0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"measure": "likeness"}, "entry 0: .*no row"),
        ({"value": "much"}, "entry 0.value: "),
        ({"interval": [0]}, "entry 0.interval"),
        ({"p": 0.1}, "entry 0.p: "),
    ],
)
def test_damaged_evidence_is_refused_by_the_name_of_its_attack(change: dict[str, Any], said: str) -> None:
    whole = dataclasses.asdict(beyond("named", 0.5)) | change
    file = {"name": "mine", "card": CARD, "status": "ran", "reason": "", "evidence": [whole]}
    with pytest.raises(UserError, match=f"the evidence of mine cannot be read: {said}"):
        judge_subject(Attacked(file), POLICY)


# One way from facts to findings -----------------------------------------------------------------


def policy(*rules: dict[str, Any]) -> GradingPolicy:
    return GradingPolicy.model_validate({"name": "own", "version": "1", "rules": rules})


def rule(measure: str, threshold: float, severity: str = "low") -> dict[str, Any]:
    condition = {"measure": measure, "statistic": "value", "at_least": threshold}
    return {"id": "mine", "severity": severity, "all": [condition], "reason": "because it is so"}


AUDIT = NoiseAuditRecord(
    id="noise-0",
    kind="model_delta",
    protection="Gaussian noise",
    mechanism="gaussian",
    unit="client",
    adjacency="add_or_remove_one",
    delta=1e-5,
    multiplier=1.0,
    single=4.38,
    releases=1,
    composed=4.38,
    failure_rate=0.05,
    refuted=True,
    sentence="At least 6 is lost.",
)
REFUTED = Fact(measure="claim_refuted", value=1)


def test_a_policy_without_rules_about_facts_does_not_make_them_clean() -> None:
    silent = policy(rule("named", 0.5))
    assert judge([REFUTED], silent) == judge([REFUTED], POLICY)
    assert judge([REFUTED], silent).severity is Severity.CRITICAL
    assert "policy default" in judge([REFUTED], silent).reason


def test_a_policy_that_names_a_fact_decides_about_it() -> None:
    wrong = Fact(measure="untrue_counts", value=60)
    assert judge([wrong], policy(rule("untrue_*", 50, "high"))).severity is Severity.HIGH
    tolerant = judge([wrong], policy(rule("untrue_counts", 100)))
    assert (tolerant.outcome, tolerant.severity) == (Outcome.NOT_DEMONSTRATED, Severity.NONE)
    assert "policy own 1" in tolerant.reason


def test_a_pattern_for_any_attack_grades_no_fact() -> None:
    assert judge([REFUTED], policy(rule("*", 0))).rule == "claim-refuted"


def test_every_kind_of_finding_cites_its_rule_in_one_form() -> None:
    audited = result()
    planted = [Linted(found) for record in PLANTED.values() for found in check(record)]
    refuted = NoiseSubject(AUDIT)
    torn = Contradiction(audited.bounds[0], 0)
    subjects = [*planted, refuted, torn, *make_bound_subjects(audited.bounds), attacked(beyond("named", 0.5))]
    for subject in subjects:
        finding = judge_subject(subject, POLICY)
        assert re.match(r"(Rule [a-z0-9-]+ of|No rule of) policy default \d+", finding.reason), finding


# One order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_audit_json_and_every_section_show_findings_in_one_order(seed: int) -> None:
    audited = result()
    mixed = random.Random(seed).sample(audited.findings, len(audited.findings))
    again = AuditResult.model_validate(audited.model_dump() | {"findings": [f.model_dump() for f in mixed]})
    ids = [f.id for f in again.findings]
    assert ids == [f.id for f in worst_first(mixed)]
    assert [f["id"] for f in again.model_dump(mode="json")["findings"]] == ids
    titles = [f.title for f in again.findings]
    document = compose(again, [catalog.load("sections", n) for n in catalog.names("sections")])
    for chapter in document.chapters:
        headings = [b.text for b in chapter.blocks if isinstance(b, Heading)]
        rows = [row[0] for b in chapter.blocks if isinstance(b, Table) for row in b.rows]
        for shown in ([t for t in texts if t in titles] for texts in (headings, rows)):
            assert shown == [t for t in titles if t in shown], chapter.card.title


def test_the_order_is_severity_then_outcome_and_attacks_before_bounds() -> None:
    some = result().findings
    ranks = [f.severity.rank for f in worst_first(some)]
    assert ranks == sorted(ranks, reverse=True)
    bound, attack = (some[0].model_copy(update={"id": s, "source": s}) for s in ("accountant", "attack"))
    assert [f.id for f in worst_first([bound, attack])] == ["attack", "accountant"]
