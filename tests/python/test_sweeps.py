"""Methods over seeds, and rules under attackers, from Python."""

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

import fedaudit as fa

SMALL: dict[str, Any] = {
    "clients": 4,
    "model": {"name": "mlp", "hidden": [8]},
    "partition": {"name": "dirichlet", "alpha": 0.3},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def swept(folder: Path) -> fa.Sweep:
    methods = {"plain": {"name": "fedavg", "lr": 0.1}, "slow": {"name": "fedavg", "lr": 0.01}}
    return fa.sweep(methods, seeds=range(3), rounds=2, federation=SMALL, out=folder, workers=0)


def test_differences_are_those_of_a_paired_test(swept: fa.Sweep) -> None:
    reached = {(r.method, r.seed): r.accuracy for r in swept.runs}
    slow, plain = ([reached[name, seed] for seed in range(3)] for name in ("slow", "plain"))
    (difference,) = swept.differences
    expected = stats.ttest_rel(slow, plain).confidence_interval(0.95)
    assert difference.interval == pytest.approx((expected.low, expected.high))
    assert len(set(slow)) > 1 and difference.mean < 0 and difference.compared_with == "plain"


def test_a_sweep_goes_on_and_gives_the_same(swept: fa.Sweep, folder: Path) -> None:
    methods = {"plain": {"name": "fedavg", "lr": 0.1}, "slow": {"name": "fedavg", "lr": 0.01}}
    written = {p: p.stat().st_mtime_ns for p in folder.rglob("metrics.jsonl")}
    again = fa.sweep(methods, seeds=range(3), rounds=2, federation=SMALL, out=folder, workers=0)
    assert again.runs.to_dicts() == swept.runs.to_dicts() and len(written) == 6
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("metrics.jsonl")} == written
    assert "Accuracy of methods" in swept.plot()._repr_html_() and "<table>" in swept._repr_html_()


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    swept = fa.sweep(["fedavg", "fedrs"], seeds=[5], rounds=1, federation=SMALL, out=tmp_path, workers=0)
    assert swept.differences[0].interval is None and swept.plot()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(fa.UserError, match="is there twice"):
        fa.sweep(["fedavg", "fedavg"], out=tmp_path)
    with pytest.raises(fa.UserError, match="seeds that differ"):
        fa.sweep(["fedavg"], seeds=[1, 1], out=tmp_path)
    with pytest.raises(fa.UserError, match="nothing_such"):
        fa.sweep(["nothing_such"], seeds=[1], out=tmp_path)
    with pytest.raises(fa.UserError, match="cannot import"):
        fa.robustness("quickstart", rules=[type("Mine", (), {"__module__": "__main__"})])


def test_rules_meet_attackers(tmp_path: Path) -> None:
    settings = {
        "federation": {"dataset": "digits", **SMALL},
        "method": {"name": "fedavg", "rounds": 1},
        "report": ["json"],
    }
    found = fa.robustness(settings, rules=["median"], attackers=["sign_flip"], out=tmp_path / "run", workers=0)
    tried = {(c.rule, c.adversary) for c in found.cells}
    assert tried == {(rule, who) for rule in ("mean", "median") for who in ("sign_flip", "_idle")}
    assert found.cells.to_dicts()[0]["malicious"] == 1 and "median" in found._repr_html_()
