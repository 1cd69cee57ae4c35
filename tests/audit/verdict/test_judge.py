"""Judging: what evidence means under the default policy. Doubt never helps the audited."""

import math
from dataclasses import replace

import pytest

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.verdict.judge import judge
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.audit.verdict.statistics import statistic
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Outcome, Severity

POLICY = load_policy("default")
CHANCE = Baseline(name="chance", value=0.01)


def evidence(measure: str = "named", value: float = 0.5, half: float = 0.02, **changes: object) -> Evidence:
    fields: dict[str, object] = {
        "measure": measure,
        "value": value,
        "unit": "fraction",
        "trials": 1000,
        "interval": (value - half, value + half),
        "baselines": (CHANCE,),
    }
    return Evidence(**(fields | changes))  # type: ignore[arg-type]


PLANTED = evidence(value=0.99, control="positive")
SILENT = evidence(value=0.01, half=0.005, control="negative")
CONTROLS = [PLANTED, SILENT]
AUC = {"baselines": (Baseline(name="chance", value=0.5),)}

GRADES = [  # (evidence beside good controls, severity, rule)
    ([evidence(value=0.6)], "critical", "re-identified-critical"),
    ([evidence(value=0.15)], "high", "re-identified-high"),
    ([evidence(value=0.06)], "medium", "re-identified-medium"),
    ([evidence(value=0.025, half=0.01)], "low", "above-chance"),
    ([evidence("auc", 0.80, **AUC)], "high", "membership-average-high"),
    ([evidence("auc", 0.76, **AUC)], "medium", "membership-average-medium"),
    ([evidence("auc", 0.53, **AUC)], "low", "above-chance"),
    ([evidence("tpr_at_fpr_0.001", 0.14)], "critical", "membership-certain"),
    ([evidence("tpr_at_fpr_0.001", 0.05)], "high", "membership-likely"),
    ([evidence("tpr_at_fpr_0.01", 0.05, half=0.01)], "medium", "membership-some-1"),
    ([evidence("count_exact_match", 0.97)], "low", "above-chance"),  # exact counts of evenly spread data
    ([evidence("examples_in_small_cells", 0.08)], "high", "small-groups-high"),
    ([evidence("examples_in_small_cells", 0.03, half=0.005)], "medium", "small-groups-medium"),
    ([evidence("rare_class_holders", 0.3)], "high", "rare-class-high"),
    ([evidence("count_overlap", 0.9)], "high", "counts-unlike-the-public-share-high"),
    ([evidence("count_overlap", 0.4)], "medium", "counts-unlike-the-public-share-medium"),
    ([evidence("prototype_recovered", 0.9)], "medium", "prototype-recovered-medium"),
    ([evidence("extracted_at_fpr_0.01", 0.45)], "critical", "images-drawn-again-critical"),
    ([evidence("extracted_at_fpr_0.01", 0.15)], "high", "images-drawn-again-high"),
    ([evidence("extracted_at_fpr_0.01", 0.04, half=0.01)], "medium", "images-drawn-again-medium"),
    ([evidence("exact_match", 0.9)], "low", "above-chance"),  # a measure no rule names
]


@pytest.mark.parametrize(("found", "severity", "rule"), GRADES)
def test_evidence_gets_the_severity_of_the_worst_rule_that_holds(
    found: list[Evidence], severity: str, rule: str
) -> None:
    verdict = judge([*found, *CONTROLS], POLICY)
    assert (verdict.outcome, verdict.severity, verdict.rule) == (Outcome.DEMONSTRATED, severity, rule)
    assert rule in verdict.reason and f"policy default {POLICY.version}" in verdict.reason


def test_the_lower_end_decides_and_not_the_value() -> None:
    wide = judge([evidence(value=0.6, half=0.2), *CONTROLS], POLICY)
    assert wide.severity == Severity.HIGH
    assert judge([evidence(value=0.6, half=0.01), *CONTROLS], POLICY).severity == Severity.CRITICAL


def test_the_strongest_blind_adversary_is_what_counts() -> None:
    informed = Baseline(name="wrong prototype, same class", value=0.58, interval=(0.5, 0.66))
    only_class = evidence(value=0.6, baselines=(CHANCE, informed))
    verdict = judge([only_class, *CONTROLS], POLICY)
    assert verdict.outcome != Outcome.DEMONSTRATED
    assert judge([evidence(value=0.6), *CONTROLS], POLICY).severity == Severity.CRITICAL


def test_likeness_counts_only_beside_recognition_at_the_same_place() -> None:
    blind = (Baseline(name="wrong prototype", value=0.3, interval=(0.28, 0.32)),)
    alike = evidence("ssim", 0.7, unit="index", baselines=blind, condition={"n": 1})
    seldom = evidence(value=0.2, condition={"n": 1})
    often, elsewhere = (evidence(value=0.6, condition={"n": 1}), evidence(value=0.6, condition={"n": 2}))
    assert judge([alike, *CONTROLS], POLICY).outcome == Outcome.INCONCLUSIVE  # no rule grades it alone
    assert judge([alike, seldom, *CONTROLS], POLICY).rule == "re-identified-high"
    together = judge([alike, often, *CONTROLS], POLICY)
    assert (together.rule, together.where) == ("image-of-a-person", "n = 1")
    assert judge([alike, elsewhere, *CONTROLS], POLICY).rule == "re-identified-critical"


def test_a_negative_control_is_one_more_baseline_and_silences_nothing() -> None:
    alarm = evidence(value=0.3, control="negative")
    strong = judge([evidence(value=0.9), PLANTED, alarm], POLICY)
    assert (strong.outcome, strong.rule) == (Outcome.DEMONSTRATED, "re-identified-critical")
    assert judge([evidence(value=0.3), PLANTED, alarm], POLICY).outcome is Outcome.NOT_DEMONSTRATED
    assert judge([evidence(value=0.3), PLANTED, SILENT], POLICY).rule == "re-identified-high"


@pytest.mark.parametrize(("fired", "rule"), [(0, "image-among-numbers"), (1, "image-among-numbers"), (8, "")])
def test_one_chance_match_among_eight_trials_does_not_silence_images_in_clear(fired: int, rule: str) -> None:
    """Momentum over five images: an image of seven of eight clients stands there, and once one of nobody's."""
    nobody = Baseline(name="an image of nobody's", value=0.0)
    images = evidence("image_present", 7 / 8, trials=8, interval=(0.47, 0.99), baselines=(nobody,))
    silent = evidence(
        "image_present", fired / 8, trials=8, interval=(0, 1), control="negative", baselines=(nobody,)
    )
    planted = evidence("image_present", 1, trials=8, interval=(0.63, 1), control="positive", baselines=(nobody,))
    assert judge([images, silent, planted], POLICY).rule == rule


NOTHING = evidence(value=0.012, half=0.008)


def test_nothing_found_with_good_controls_is_not_demonstrated() -> None:
    verdict = judge([NOTHING, *CONTROLS], POLICY)
    assert (verdict.outcome, verdict.severity) == (Outcome.NOT_DEMONSTRATED, Severity.NONE)


def test_a_measure_that_could_have_shown_nothing_takes_nothing_from_one_that_could() -> None:
    blunt = [evidence("rank5", value=0.03, half=0.05), evidence("psnr", value=0.5, half=1.0, unit="dB")]
    alone, beside = judge([NOTHING, *CONTROLS], POLICY), judge([NOTHING, *blunt, *CONTROLS], POLICY)
    assert (beside.outcome, beside.reason) == (Outcome.NOT_DEMONSTRATED, alone.reason)


@pytest.mark.parametrize(
    ("found", "phrase"),
    [
        ([NOTHING, SILENT], "No planted leak"),
        ([NOTHING, evidence(value=0.02, half=0.02, control="positive")], "missed its planted leak"),
        (CONTROLS, "nothing that could be graded"),
        ([], "nothing that could be graded"),
    ],
)
def test_finding_nothing_without_proof_that_the_attack_works_is_inconclusive(
    found: list[Evidence], phrase: str
) -> None:
    verdict = judge(found, POLICY)
    assert verdict.outcome == Outcome.INCONCLUSIVE and phrase in verdict.reason


def test_a_missed_planted_leak_does_not_hide_a_demonstrated_one() -> None:
    missed = evidence(value=0.02, half=0.02, control="positive")
    assert judge([evidence(value=0.6), missed], POLICY).severity == Severity.CRITICAL


def test_statistics_by_hand() -> None:
    e = evidence(value=0.6, half=0.1, baselines=(Baseline(name="b", value=0.2, interval=(0.1, 0.3)),))
    assert statistic(e, "value") == pytest.approx(0.5)
    assert statistic(e, "excess") == pytest.approx(0.4 - math.sqrt(0.02))
    # R = 0.4 / 0.8; its two errors are 0.1 / 0.8 and 0.1 * 0.4 / 0.64
    assert statistic(e, "residual_risk") == pytest.approx(0.5 - math.hypot(0.125, 0.0625))


def test_where_lower_is_worse_the_signs_turn() -> None:
    error, blind = "feature_relative_error", (Baseline(name="b", value=0.5),)
    e = evidence(error, 0.1, half=0.05, higher_is_worse=False, baselines=blind)
    assert statistic(e, "excess") == pytest.approx(0.35)
    assert statistic(evidence(error, 0.6, higher_is_worse=False, baselines=blind), "excess") < 0


def test_every_rule_of_the_default_policy_gives_its_reason() -> None:
    record = POLICY.record()
    assert all(len(r.reason) > 30 for r in record.rules)
    assert [r.severity.rank for r in record.rules] == sorted(
        (r.severity.rank for r in record.rules), reverse=True
    )
    assert "named >= 0.5 and ssim excess >= 0.2" in [r.when for r in record.rules]


def test_a_policy_of_ones_own_is_read_by_path_and_checked(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "strict.yaml"
    text = (
        "name: strict\nversion: '2'\n"
        "rules:\n  - {id: any, severity: critical, reason: nothing may leak at all,\n"
        "     all: [{measure: named, statistic: excess, above: 0}]}\n"
    )
    path.write_text(text)
    strict = load_policy(str(path))
    assert judge([evidence(value=0.05), *CONTROLS], strict).rule == "any"
    for wrong, phrase in (
        (text.replace("above: 0", "abov: 0"), r"unknown key rules\[0\].all\[0\].abov"),
        (text.replace(", above: 0", ""), "must have at_least or above"),
        (text.replace("critical", "awful"), "severity must be"),
        (text.replace("nothing may leak at all", "no"), "reason"),
    ):
        path.write_text(wrong)
        with pytest.raises(UserError, match=phrase):
            load_policy(str(path))
    with pytest.raises(UserError, match="no policy 'lax'"):
        load_policy("lax")


def test_the_policy_is_immutable() -> None:
    assert isinstance(POLICY, GradingPolicy)
    with pytest.raises(ValueError, match="frozen"):
        POLICY.version = "2"  # type: ignore[misc]


def test_what_a_policy_has_no_rule_about_is_not_called_nothing() -> None:
    bare = POLICY.model_copy(update={"name": "bare", "rules": []})
    leak = evidence(value=0.6)
    for trials, evidently in ((1000, leak), (4, replace(leak, trials=4, interval=(0.1, 0.9)))):
        reason = judge([evidently, *CONTROLS], bare).reason
        assert "which no rule of policy bare grades" in reason and "othing " not in reason, trials
    assert "nothing beyond the baselines" in judge([NOTHING, *CONTROLS], bare).reason
