"""Variants: what a config says, what each run folder holds, what is compared, and that kills do not matter."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, Severity
from tests.audit.tiny import VERDICTS

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
    assert main.accuracy_change is None and main.severity is Severity.NONE
    assert threshold.accuracy_change is not None and threshold.accuracy_change_interval is not None
    assert main.word is not None and threshold.word is not None and secure.word is not None
    assert threshold.settings == [] and secure.settings == ["lr: 0.02"]
    assert [e.cell for e in threshold.cells] == [q.id for q in result.questions]
    assert all(e.limits.startswith("at least") for e in main.cells)


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
    again = CliRunner().invoke(app, ["run", str(tmp_path / "out"), "--phase", "score", "--trust-plugins"])
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
