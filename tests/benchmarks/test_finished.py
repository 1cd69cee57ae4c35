"""Finished cells beside a table are not run again while its settings stand, and decide claims by one rule."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper_tables.claims import NOT, OPEN, REPRODUCED, SAME, differences, section, verdict
from benchmarks.paper_tables.finished import KEYS, read
from benchmarks.paper_tables.main import Selection, reproduce
from benchmarks.paper_tables.report import Finished, collect, kept
from benchmarks.paper_tables.table import Claim, load_table, tables
from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.metrics import summary
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.runtime.errors import UserError
from tests.benchmarks.test_papers import TINY
from tests.fl.test_all_methods import method
from tests.fl.worlds import TinyNet, run

ROOT = Path(__file__).parents[2]
SHAPE = (1, 6, 6)
CHOSEN = Selection(rounds=2, seeds=(7, 8), columns=("even",), workers=0)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny table, its cells run below `first` and kept beside it."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "tiny.yaml").write_text(TINY)
    reproduce(load_table(str(folder / "tiny.yaml")), CHOSEN, folder / "first", keep=True)
    return folder


@pytest.fixture
def table(once: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "tiny.yaml"


def test_kept_cells_are_not_run_again_and_count_as_those_run(table: Path, tmp_path: Path) -> None:
    page = reproduce(load_table(str(table)), CHOSEN, tmp_path / "second")
    assert page.read_text() == (tmp_path / "first" / "tiny" / "table.md").read_text()
    assert not list((tmp_path / "second").rglob("metrics.jsonl"))
    more = Selection(rounds=2, seeds=(7, 9), columns=("even",), rows=("FedAvg",), workers=0)
    reproduce(load_table(str(table)), more, tmp_path / "second")
    assert [p.parent.name for p in (tmp_path / "second").rglob("metrics.jsonl")] == ["seed-9-r2"]


def test_a_cell_stands_for_those_of_other_columns_with_the_same_settings(table: Path) -> None:
    twin = TINY.replace("rows:", "  twin: {overrides: {federation: {availability: full}}}\nrows:", 1)
    table.write_text(twin.replace("{even: 90, half: }", "{even: 90, half: , twin: }"))
    found = [(k.column, k.row, k.seed) for k in read(load_table(str(table)))]
    assert [f for f in found if f[0] != "even"] == [("twin", "FedAvg", 7), ("twin", "FedAvg", 8)]
    assert len(found) == len(set(found)) == 6
    page = reproduce(load_table(str(table)), replace(CHOSEN, columns=("twin",)), table.parent / "third")
    assert "twin" in page.read_text() and not list((table.parent / "third").rglob("metrics.jsonl"))


def test_a_file_says_what_ran_and_where_its_numbers_come_from(table: Path) -> None:
    one = next(iter(read(load_table(str(table)))))
    assert (one.column, one.row, one.seed, one.rounds, len(one.history)) == ("even", "FedAvg", 7, 2, 2)
    assert len(one.config) == len(one.data) == 64 and one.versions["torch"]
    assert (one.settings["seed"], one.settings["method"]["lr"], "path" in one.settings["federation"]) == (
        7,
        0.1,
        False,
    )
    assert all(0 <= r["accuracy"] <= 1 and len(r["class_accuracy"]) == 10 for r in one.history)


@pytest.mark.dear("gandalf")
@pytest.mark.parametrize("name", ["fedavg", "freezefl", "gandalf", "fedasync"])
def test_no_statistic_of_a_run_is_lost_in_what_is_kept_of_it(name: str) -> None:
    times = TimeModel(
        capability=np.array([0.5, 1.0, 3.0, 1.0, 2.0]), workload=Counted().workload(TinyNet(), SHAPE)
    )
    history = [h | {"asr": 0.5} for h in run(method(name), time_model=times).history]
    cut = [{k: h[k] for k in KEYS if k in h} for h in history]
    assert summary(history) == summary(cut) and {"accuracy_best", "asr_final"} <= summary(cut).keys()


def test_cells_of_other_settings_do_not_count(table: Path) -> None:
    table.write_text(TINY.replace("alpha: 0.5", "alpha: 0.9"))
    assert {r.row for r in kept(load_table(str(table)))} == {"FedAvg"}
    table.write_text(TINY.replace("lr: 0.1", "lr: 0.2"))
    assert kept(load_table(str(table))) == []


def _changed(table: Path, part: str, key: str, value: object = None) -> list[str]:
    """The rows that count when one file has another setting of the federation; None: it lacks it."""
    path = table.parent / "finished" / "tiny" / "even" / "FedAvg" / "seed-7-r2.json"
    before = path.read_text()
    held = json.loads(before)
    held[part]["federation"] = {k: v for k, v in held[part]["federation"].items() if k != key}
    held[part]["federation"] |= {} if value is None else {key: value}
    held["config"] = of_value([held["written"], held["settings"]])
    path.write_text(json.dumps(held))
    found = [f"{r.row}-{r.seed}" for r in kept(load_table(str(table)))]
    path.write_text(before)
    return found


def test_a_setting_that_came_or_went_stood_at_its_default_unless_somebody_wrote_it(table: Path) -> None:
    others = ["FedAvg-8", "FedRS-7", "FedRS-8"]
    assert _changed(table, "settings", "empty_round") == ["FedAvg-7", *others]  # it came later
    assert _changed(table, "settings", "gone", 1) == ["FedAvg-7", *others]
    assert _changed(table, "settings", "empty_round", 0.5) == others  # another default
    assert _changed(table, "settings", "clients") == others  # the table writes it
    assert _changed(table, "written", "gone", 1) == others  # a table wrote it then


def test_settings_that_were_edited_do_not_count(table: Path) -> None:
    path = table.parent / "finished" / "tiny" / "even" / "FedAvg" / "seed-7-r2.json"
    path.write_text(path.read_text().replace('"config":"', '"config":"0', 1))
    assert len(kept(load_table(str(table)))) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"column": "even"}'])
def test_a_file_that_is_no_cell_is_refused_by_name(text: str, table: Path) -> None:
    path = table.parent / "finished" / "tiny" / "even" / "FedAvg" / "seed-7-r2.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"seed-7-r2\.json"):
        kept(load_table(str(table)))


def test_a_cell_under_anothers_name_is_refused(table: Path) -> None:
    path = table.parent / "finished" / "tiny" / "even" / "FedAvg" / "seed-7-r2.json"
    path.rename(path.with_name("seed-17-r2.json"))
    with pytest.raises(UserError, match=r"holds the cell even/FedAvg/seed-7-r2"):
        kept(load_table(str(table)))


# Claims ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "least", "expected"),
    [
        ([], 0.0, OPEN),
        ([5.0, 5.0], 0.0, OPEN),  # two seeds decide nothing
        ([0.9, 1.0, 1.1], 0.0, REPRODUCED),  # [.75, 1.25]
        ([0.9, 1.0, 1.1], 0.7, REPRODUCED),
        ([0.9, 1.0, 1.1], 0.8, OPEN),
        ([0.9, 1.0, 1.1], 1.3, NOT),
        ([-0.9, -1.0, -1.1], 0.0, NOT),
        ([0.0, 0.0, 0.0], 0.0, NOT),
        ([0.0, 1.0, 2.0], 0.0, OPEN),  # [-1.48, 3.48]
    ],
)
def test_verdicts_by_hand(found: list[float], least: float, expected: str) -> None:
    assert verdict(found, least) == expected


def test_a_verdict_on_another_setting_is_none_on_the_papers_and_allows_for_the_other_claims() -> None:
    assert verdict([0.9, 1.0, 1.1], is_papers=False) == SAME == "same sign, other setting"
    assert (
        verdict([-0.9, -1.0, -1.1], is_papers=False) == NOT and verdict([0.0, 1.0, 2.0], is_papers=False) == OPEN
    )
    assert verdict([0.9, 1.0, 1.1], 0.7, claims=2) == OPEN  # [0.64, 1.36] at 97.5 %


CLAIM = "claims: [{says: FedRS is higher, column: even, above: FedRS, below: FedAvg, rounds: 2, printed: 3}]\n"


def test_a_claim_takes_differences_at_the_same_seed(table: Path) -> None:
    table.write_text(TINY + CLAIM)
    loaded = load_table(str(table))
    runs = collect(loaded, table.parent / "none").runs
    best = {(r.row, r.seed): 100 * max(h["accuracy"] for h in r.history) for r in runs}
    text = section(loaded, runs)
    gaps = [best["FedRS", s] - best["FedAvg", s] for s in (7, 8)]
    assert f"| {gaps[0]:+.2f}, {gaps[1]:+.2f} | {sum(gaps) / 2:+.2f} [" in text
    assert "| +3 | **cannot be decided** |" in text
    assert "* 1: accuracy_best, 2 of 4 rounds." in text
    assert "make paper TABLE=tiny COLUMN=even ROWS=FedAvg,FedRS ROUNDS=2 SEEDS=7,8,9" in text  # one is missing


def test_at_equal_use_a_row_that_needs_less_is_not_given_more() -> None:
    """One row uses 10 examples a round, the other 20: after four rounds and two they are even, at .3 and .6."""
    claim = Claim(says="so", column="even", above="A", below="B", equal="samples_used")

    def ran(row: str, each: int, *accuracies: float) -> Finished:
        history = [{"accuracy": a, "samples_used": each} for a in accuracies]
        return Finished(column="even", row=row, seed=7, rounds=4, history=history)

    frugal, greedy = ran("A", 10, 0.1, 0.2, 0.3, 0.3), ran("B", 20, 0.5, 0.6, 0.7, 0.8)
    assert differences(claim, [frugal, greedy], 4) == {7: pytest.approx(30 - 60)}
    assert differences(claim, [ran("A", 20, 0.1, 0.2, 0.3, 0.3), greedy], 4) == {7: pytest.approx(30 - 80)}
    assert differences(claim.model_copy(update={"equal": None}), [frugal, greedy], 4) == {
        7: pytest.approx(30 - 80)
    }


@pytest.mark.parametrize("old", ["column: even", "above: FedRS", "below: FedAvg"])
def test_a_claim_on_what_the_table_does_not_have_is_refused(old: str, table: Path) -> None:
    table.write_text(TINY + CLAIM.replace(old, old + "x"))
    with pytest.raises(UserError, match="did you mean"):
        load_table(str(table))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", tables())
def test_every_cell_that_comes_with_the_project_still_counts(name: str) -> None:
    table = load_table(name)
    files = {(p.parent.parent.name, p.parent.name, p.stem) for p in table.kept.rglob("*.json")}
    assert files <= {(k.column, k.row, f"seed-{k.seed}-r{k.rounds}") for k in read(table)}


@pytest.mark.nightly
def test_the_document_says_of_every_claim_what_its_cells_decide() -> None:
    said = (ROOT / "docs" / "reproduction.md").read_text()
    for name in tables():
        table = load_table(name)
        assert not table.header.claims or section(table, kept(table)) in said


def test_numbers_are_kept_to_the_precision_they_have(table: Path) -> None:
    path = table.parent / "finished" / "tiny" / "even" / "FedAvg" / "seed-7-r2.json"
    ran = table.parent / "first" / "tiny" / "even" / "FedAvg" / "seed-7-r2" / "metrics.jsonl"
    for a, line in zip(json.loads(path.read_text())["history"], ran.read_text().splitlines(), strict=True):
        assert a["accuracy"] == pytest.approx(json.loads(line)["accuracy"], abs=1e-7)
