"""A matrix: which runs it needs, what a config may say, lints, and a tiny one from config to report."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import MATRIX
from fedaudit.audit.robustness.lints import find_pitfalls
from fedaudit.audit.robustness.plan import MatrixPlace, plan_matrix
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, Outcome, Severity
from fedaudit.reports.robustness import MatrixCell, Robustness
from tests.audit.tiny import VERDICTS

HERE = "tests.audit.tiny"
TEXT = f"""
federation:
  dataset: {{name: "{HERE}:TinyImages", examples: 120}}
  clients: 5
  model: {{name: "{HERE}:Linear", width: 5}}
  availability: "{HERE}:Everyone"
  holdout: {{auxiliary: 0, reference: 0}}
method: {{name: fedavg, rounds: 2, local_epochs: 1, lr: 0.5}}
workers: 0
attacks: []
report: [json, html]
matrix:
  adversaries: [sign_flip, {{name: sign_flip, id: ten-times, scale: 10}}]
  aggregators: [median, krum]
  malicious: [0, 1]
"""


def config(**changes: Any) -> Config:
    plain = yaml.safe_load(TEXT)
    plain["matrix"] |= changes.pop("matrix", {})
    return validate(Config, plain | changes, "c.yaml")


def plan(config: Config) -> list[MatrixPlace]:
    c = config.require_simulated()
    assert c.matrix is not None
    return plan_matrix(c.matrix, c.method, c.federation, c.protections, c.seed)


def test_nobody_malicious_the_mean_and_two_controls_are_always_there_and_clean_once() -> None:
    folders = [p.folder for p in plan(config(matrix={"adversaries": ["sign_flip"], "aggregators": ["krum"]}))]
    assert folders == [
        "fedavg-iid/mean/clean/seed-7",
        "fedavg-iid/krum-f1/clean/seed-7",
        "fedavg-iid/mean/_idle-1/seed-7",
        "fedavg-iid/mean/_planted-1/seed-7",
        "fedavg-iid/mean/sign_flip-1/seed-7",
        "fedavg-iid/krum-f1/_idle-1/seed-7",
        "fedavg-iid/krum-f1/sign_flip-1/seed-7",
    ]


def test_the_planted_fault_breaks_means_that_weigh_the_malicious_ten_times_less_than_others() -> None:
    # of ten clients one malicious: a tau of n / m + 1 left ReBaFL as it was, where that client held few examples
    planted = next(p for p in plan(config(matrix={"malicious": [1]})) if p.adversary == "_planted")
    tau = planted.changes["adversary"]["tau"]
    share = 0.1 / 5
    assert (1 - share) - tau * share < 0  # of the honest mean that is left


def test_a_rule_is_told_how_many_are_malicious_or_what_its_entry_says() -> None:
    rules = ["krum", {"name": "krum", "id": "krum-f0", "f": 0}]
    many = plan(config(matrix={"malicious": [2], "aggregators": rules}))
    assert {p.rule.name: p.rule.assumed for p in many if "krum" in p.rule.name} == {"krum-f2": 2, "krum-f0": 0}
    fixed = plan(config(matrix={"aggregators": [{"name": "krum", "f": 3}]}))
    assert {p.rule.assumed for p in fixed if p.rule.name == "krum"} == {3}


def test_every_method_of_a_matrix_trains_as_long_and_in_as_large_steps_as_the_audits_own() -> None:
    many = config(matrix={"methods": ["fedavg", "rebafl", {"name": "fedprox", "lr": 0.25}]})
    methods = [overridden(many, p.overrides, where=p.folder).require_simulated().method for p in plan(many)]
    assert {m.name for m in methods} == {"fedavg", "rebafl", "fedprox"}
    assert {(m.settings["rounds"], m.settings["local_epochs"]) for m in methods} == {(2, 1)}
    assert {m.settings["lr"] for m in methods if m.name != "fedprox"} == {0.5}
    assert {m.settings["lr"] for m in methods if m.name == "fedprox"} == {0.25}


def test_each_protection_stands_beside_the_audits_own_which_are_tried_by_themselves() -> None:
    clip = {"name": "dp_gaussian", "id": "client-clip", "clip_norm": 1.0, "noise_multiplier": 0.0}
    many = config(protections=["quantise"], matrix={"protections": [clip]})
    found = {p.setting: overridden(many, p.overrides, where=p.folder).protections for p in plan(many)}
    assert {s: [p.name for p in ps] for s, ps in found.items()} == {
        "fedavg-iid": ["quantise"],
        "fedavg-iid-client-clip": ["quantise", "dp_gaussian"],
    }


def test_a_resolved_config_needs_the_same_runs() -> None:
    again = validate(Config, yaml.safe_load(dump(resolve(config()))), "again")
    assert [(p.folder, p.rule) for p in plan(again)] == [(p.folder, p.rule) for p in plan(config())]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matrix": {"malicious": [6]}}, "matrix.malicious must be at most federation.clients"),
        ({"matrix": {"adversaries": ["sign_flip", "sign_flip"]}}, "'sign_flip' more than once"),
        ({"matrix": {"aggregators": ["mean"]}}, "'mean' more than once"),
        ({"matrix": {"adversaries": [{"name": "sign_flip", "clients": 2}]}}, "is what matrix.malicious says"),
        ({"aggregator": "median"}, "aggregator is what the matrix varies"),
    ],
)
def test_a_matrix_that_contradicts_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        config(**changes)


def record(seeds: list[int], families: list[str]) -> Robustness:
    cells = [
        MatrixCell(
            setting="fedavg-iid",
            rule=f,
            family=f,
            assumed=None,
            adversary="sign_flip",
            title="Sign flip",
            malicious=1,
            accuracy=0.5,
            clean=0.9,
            by_seed=[(0.5, 0.9)],
        )
        for f in families
    ]
    return Robustness(clients=5, chance=0.5, seeds=seeds, cells=[c for c in cells if c.family != "mean"])


def test_an_easy_matrix_is_told_what_it_leaves_out_and_a_thorough_one_is_not() -> None:
    easy = find_pitfalls(config().matrix, "iid", [], record([7], ["krum (f = m)"]))
    medium, low = Severity.MEDIUM, Severity.LOW
    assert {s.id: s.severity for s in easy} == dict(
        zip((f"lint-R{n}" for n in range(1, 7)), (medium, medium, low, medium, low, low), strict=True)
    )
    assert easy[0].title == ("The test of the defences leaves something out: Only naive attacks were tried")
    thorough = config(
        matrix={
            "adversaries": ["adaptive"],
            "aggregators": ["krum", {"name": "krum", "id": "krum-f0", "f": 0}],
            "partitions": ["iid", {"name": "dirichlet", "alpha": 0.3}],
        }
    )
    left = find_pitfalls(thorough.matrix, "iid", [], record([7, 8, 9], ["median"]))
    assert [s.id for s in left] == ["lint-R6"]


@pytest.mark.nightly
def test_a_tiny_matrix_from_config_to_report_and_again_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT)
    out = tmp_path / "out"
    found = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(out)])
    assert found.exit_code in VERDICTS, found.output
    result = AuditResult.model_validate_json((out / "audit.json").read_bytes())
    matrix = result.robustness
    assert matrix is not None and not matrix.not_run
    assert [c.rule for c in matrix.costs] == ["mean", "median", "krum-f1"]
    assert {(c.rule, c.adversary) for c in matrix.cells} == {
        (r, a) for r in ("mean", "median", "krum-f1") for a in ("sign_flip", "ten-times")
    }
    assert all((out / f).is_dir() for c in matrix.cells for f in c.folders)
    ours = [f for f in result.findings if f.source == "robustness"]
    assert len(ours) == 5 and all(f.outcome is not Outcome.FAILED for f in ours)
    assert any(f.id == "lint-R3" for f in result.findings)
    assert "robust " not in " ".join(f.title + f.summary + f.reason for f in ours).lower()
    before = (out / "evidence" / MATRIX).read_bytes()
    (out / "evidence" / MATRIX).unlink()
    phases = json.loads((out / "phases.json").read_text())
    phases["matrix"]["seconds"] = None  # killed in the middle
    (out / "phases.json").write_text(json.dumps(phases))
    found = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(out)])
    assert found.exit_code in VERDICTS, found.output
    assert (out / "evidence" / MATRIX).read_bytes() == before


@pytest.mark.nightly
def test_a_matrix_says_how_long_a_backdoor_stays_and_where_forged_changes_stand(tmp_path: Path) -> None:
    plain = yaml.safe_load(TEXT)
    plain["method"] |= {"rounds": 4, "weighting": "uniform"}
    plain["matrix"] = {"adversaries": [{"name": "backdoor", "scale": 20, "target": 1, "leaves": 2}]}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    out = tmp_path / "out"
    found = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(out)])
    assert found.exit_code in VERDICTS, found.output
    matrix = AuditResult.model_validate_json((out / "audit.json").read_bytes()).robustness
    assert matrix is not None
    [cell] = matrix.cells
    stayed, long = cell.find("durability"), cell.find("norm_rank")
    assert stayed is not None and stayed.value in (1, 2) and long is not None and long.value > 0.5
    text = (out / "report.html").read_text()
    assert "until the backdoor works half as often" in text and "Honest changes that are shorter" in text
