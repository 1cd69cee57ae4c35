"""Variants: what a config says, what each run folder holds, what is compared, and that kills do not matter."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.phases.variants import Variants
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.audit.verdict.trade_changes import (
    choose_telling,
    describe_changes,
    describe_settings,
    difference,
    measure_changes,
)
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Alternative, AuditResult, Finding, Outcome, Severity
from tests.audit.tiny import VERDICTS
from tests.reports.sample import result

TEXT = """
federation:
  dataset: {name: "tests.audit.tiny:TinyImages", examples: 120}
  clients: 4
  model: {name: "tests.audit.tiny:Linear", width: 5}
  availability: "tests.audit.tiny:Everyone"
  holdout: {auxiliary: 0.3, reference: 0.3}
method: {name: rebafl, rounds: 2, local_epochs: 1}
workers: 0
replay: {sizes: [1, 5], clients: 2, groups: 10}
attacks: [count_recovery, {name: prototype_membership, least_auxiliary: 5}]
report: [json]
variants:
  - {name: threshold, protections: [{name: prototype_threshold, least: 500}], attacks: [count_recovery]}
  - {name: secure, protections: [secure_aggregation], method: {lr: 0.02}}
"""


def run(folder: Path, text: str = TEXT) -> AuditResult:
    (folder / "c.yaml").write_text(text)
    found = CliRunner().invoke(app, ["run", str(folder / "c.yaml"), "--out", str(folder / "out")])
    assert found.exit_code in VERDICTS, found.output
    return AuditResult.model_validate_json((folder / "out" / "audit.json").read_bytes())


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    folder = tmp_path_factory.mktemp("variants")
    return run(folder), folder


@pytest.mark.nightly
def test_each_variant_is_a_run_folder_of_its_own_with_the_same_seed(audited: tuple[AuditResult, Path]) -> None:
    _, folder = audited
    for name in ("threshold", "secure"):
        config = load(folder / "out" / "variants" / name / "config.yaml")
        assert config.seed == load(folder / "c.yaml").seed and not config.variants
    assert config.require_simulated().method.settings["lr"] == 0.02


def test_the_audited_run_comes_first_and_each_variant_says_what_it_changed(
    audited: tuple[AuditResult, Path],
) -> None:
    result, _ = audited
    main, threshold, secure = result.alternatives
    assert [r.name for r in result.alternatives] == ["as audited", "threshold", "secure"]
    assert main.accuracy_change is None and main.severity.rank > Severity.NONE.rank
    assert threshold.accuracy_change is not None and threshold.accuracy_change_interval is not None
    assert main.word is not None and threshold.word is not None and secure.word is not None
    assert threshold.settings == [] and secure.settings == ["lr: 0.02"]
    assert describe_settings(
        {"lr": "1", "gan": "cycles: 24, local: 2"}, {"lr": "1", "gan": "cycles: 6, local: 2"}
    ) == ["gan: cycles: 6"]
    assert {t.value for t in main.trades if t.measure == "count_exact_match"} == {1.0}


def test_a_findings_advice_cites_the_protections_that_were_tried(audited: tuple[AuditResult, Path]) -> None:
    counts = next(f for f in audited[0].findings if f.id == "count_recovery")
    assert "With threshold: " in counts.remedy and "\u2192 not readable" in counts.remedy
    assert ", accuracy " in counts.remedy


def test_a_second_run_repeats_nothing_and_a_lost_variant_is_made_again(
    audited: tuple[AuditResult, Path], tmp_path: Path
) -> None:
    first, folder = audited
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)  # with the times of its files
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert run(tmp_path) == first
    changed = [p for p, t in kept.items() if p.stat().st_mtime_ns != t]
    assert not changed
    broken = tmp_path / "out" / "variants" / "secure"
    for name in ("audit.json", "phases.json"):
        (broken / name).unlink()
    again = CliRunner().invoke(app, ["phase", "score", str(tmp_path / "out"), "--trust-plugins"])
    assert again.exit_code == 0, again.output
    result = AuditResult.model_validate_json((tmp_path / "out" / "audit.json").read_bytes())
    assert [r.finished for r in result.alternatives] == [True, True, False]
    assert run(tmp_path).alternatives == first.alternatives
    assert (broken / "audit.json").exists()


def test_resolving_is_stable_and_fills_in_the_variants_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT)
    once = resolve(load(tmp_path / "c.yaml"))
    assert once["variants"][0]["protections"] == [{"name": "prototype_threshold", "least": 500}]
    (tmp_path / "d.yaml").write_text(dump(once))
    assert resolve(load(tmp_path / "d.yaml")) == once


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("name: secure", "name: threshold", "different names, got 'threshold' twice"),
        ("name: secure", "name: ../up", "pattern"),
        ("attacks: [count_recovery]}", "attacks: [ridge]}", "got 'ridge'"),
        ("attacks: [count_recovery]}", "attacks: [ridge]}", "c.yaml:14: variants[0].attacks"),
        ("prototype_threshold", "prototype_treshold", "variants[0].protections[0]"),
    ],
)
def test_variants_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "c.yaml").write_text(TEXT.replace(old, new))
    with pytest.raises(UserError) as error:
        load(tmp_path / "c.yaml")
    assert says in str(error.value) or says in str(error.value.hint)


def test_an_unknown_setting_of_the_method_is_refused_with_the_variants_name(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "federation": {"dataset": "digits"},
            "method": "rebafl",
            "variants": [{"name": "a", "method": {"lrr": 1}}],
        }
    )
    with pytest.raises(UserError, match="lrr"):
        assert config.variants
        resolve(Variants(RunDir(tmp_path), config).configure(config.variants[0]))


def test_the_interval_of_a_difference_is_the_worked_example_of_zou_and_donner() -> None:
    # Newcombe (1998), Table II (a), method 10: 56/70 against 48/80, Wilson: 0.0524 to 0.3339
    from fedaudit.attacks import stats

    found = difference(56 / 70, stats.wilson(56, 70), 48 / 80, stats.wilson(48, 80))
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)


def _evidence(measure: str, n: float, origin: str, value: float) -> Evidence:
    return Evidence(
        measure=measure,
        value=value,
        unit="fraction",
        trials=9,
        interval=(0.0, 1.0),
        condition={"n": n, "origin": origin},
    )


def test_the_places_compared_are_the_smallest_n_of_each_origin() -> None:
    found = [_evidence("named", n, o, n / 20) for n in (5, 1, 20) for o in ("replayed", "recorded")]
    chosen = choose_telling([*found, *(_evidence(m, 1, "replayed", 0.1) for m in ("auc", "rank5"))])
    assert [(e.measure, e.condition["n"]) for e in chosen] == [("named", 1), ("named", 1), ("auc", 1)]


def test_what_has_no_n_is_compared_at_the_place_that_was_graded_and_nowhere_else() -> None:
    def measure(graded: str, **values: float) -> AuditResult:
        made = result()
        evidence = [
            Evidence(
                measure="auc", value=v, unit="fraction", trials=9, interval=(0.0, 1.0), condition={"rule": r}
            )
            for r, v in values.items()
        ]
        made.findings = [made.findings[0].model_copy(update={"source": "attack", "where": graded})]
        made.findings[0].evidence = evidence
        return made

    main = measure("rule = norms", sums=0.45, norms=0.96)
    (own,) = measure_changes(main, main)
    assert (own.value, own.place) == (0.96, "rule = norms")
    (changed,) = measure_changes(main, measure("", sums=0.5, norms=0.6))
    assert (changed.value, changed.place) == (0.6, "rule = norms")
    (missing,) = measure_changes(main, measure("", sums=0.5))
    assert missing.value is None


def test_no_variants_no_advice() -> None:
    finding = Finding(
        id="x", title="t", source="attack", outcome=Outcome.DEMONSTRATED, severity=Severity.LOW, summary="s"
    )
    assert describe_changes(finding, []) == ""
    assert describe_changes(finding, [Alternative(name="a", protections=[])]) == ""
