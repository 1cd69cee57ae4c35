"""Published tables: every cell is a valid config, printed numbers are the papers', runs are compared."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.paper_tables.main import Selection, main, reproduce
from benchmarks.paper_tables.report import Finished, blocks, collect
from benchmarks.paper_tables.table import load_table, tables
from fedaudit.audit.settings.resolve import resolve
from fedaudit.fl.runtime.errors import UserError
from tests.selection import check_each

APP = typer.Typer()
APP.command()(main)

TINY = """
title: A tiny table
source: nobody
base:
  federation: {dataset: digits, clients: 4, model: {name: mlp, hidden: [8]}, limit: 200}
  method: {rounds: 4, local_epochs: 1, batch_size: 20, lr: 0.1}
columns:
  even: {overrides: {federation: {availability: full}}, note: Everybody answers.}
  half: {overrides: {federation: {availability: {name: bernoulli, p: 0.5}}}}
rows:
  FedAvg: {method: {name: fedavg}, published: {even: 90, half: }}
  FedRS: {method: {name: fedrs, alpha: 0.5}, published: {even: 12.5}, relative_to: FedAvg}
"""
# Data sets that are only read from a folder of the user's
WHERE = {"femnist": {"path": "x"}, "shakespeare": {"path": "x"}, "cinic10": {"path": "x"}}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path / "tiny.yaml"


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(APP, [str(w) for w in words])
    return result.exit_code, result.output


def refusal(*words: object) -> str:
    code, text = call(*words)
    assert code == 2 and text.startswith("error: ") and "hint: " in text
    return text


TABLES = {name: load_table(name) for name in tables()}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.rows]


@pytest.mark.parametrize("name", tables())
def test_every_column_has_rows_and_every_row_a_column(name: str) -> None:
    table = load_table(name)
    assert all(len(table.rows_of(c)) >= 1 for c in table.columns)
    assert all(row.published for row in table.rows.values())


def check_cells(name: str, row: str) -> None:
    table = TABLES[name]
    for column in table.rows[row].published:
        config = table.cell(column, row, rounds=3, seed=5, data=WHERE).require_simulated()
        resolved = resolve(config)
        assert resolved["method"]["rounds"] == 3 + table.more_rounds(column, row)
        assert resolved["seed"] == 5
        assert (config.record, config.federation.holdout.auxiliary) == ((), 0)
        assert config.federation.holdout.reference == 0 and config.attacks == ()


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", tables())
def test_every_cell_is_a_valid_config(name: str) -> None:
    check_each(check_cells, [(n, row) for n, row in ROWS if n == name])


@pytest.mark.parametrize(
    ("name", "column", "row", "statistic", "number"),
    [
        ("rebafl-1", "fmnist-m20", "FedAvg", "accuracy_best", 75.27),
        ("rebafl-1", "fmnist-m20", "ReBaFL", "accuracy_best", 78.81),
        ("rebafl-1", "fmnist-m50", "FedDyn", "accuracy_best", 85.26),
        ("rebafl-1", "cifar10-m20", "Scaffold", "accuracy_best", 20.57),
        ("rebafl-1", "cifar10-m50", "MOON", "accuracy_best", 59.08),
        ("rebafl-2", "clustered", "R-BSM", "accuracy_best", 65.75),
        ("rebafl-2", "pathological", "F-Aug", "accuracy_best", 54.01),
        ("rebafl-3", "m500", "BSM-FedAvg", "accuracy_best", 43.36),
        ("fedrs-tfcnn", "c10-100-2", "FedRS-0.5", "accuracy_last50_mean", 70.8),
        ("fedrs-tfcnn", "c100-100-20", "FD", "accuracy_last50_std", 0.227),
        ("fedrs-vgg11", "c100-100-20", "FedRS-0.5", "accuracy_last50_mean", 47.5),
        ("fedrs-vgg11", "c10-100-5", "Scaffold-RS", "accuracy_last50_std", 0.285),
        ("feddc-1", "e10-alpha0.05", "SCAFFOLD", "accuracy_best@100", 33.71),
        ("feddc-1", "e1-alpha1", "FedAvg", "accuracy_best", 65.67),
        ("feddc-1", "e10-alpha1", "FedProx", "max_drop", -10.46),
        ("seol-kim-1", "case4", "FedNova", "accuracy_last50_mean", 9.7),
        ("seol-kim-1", "case1", "Seol-Kim-beta3", "accuracy_last50_mean", 21.8),
        ("seol-kim-1", "case2", "Seol-Kim", "accuracy_last50_mean", 12.2),
        ("seol-kim-1", "case1", "selection-only", "accuracy_last50_mean", 22.5),
        ("fedrs-tfcnn", "c10-100-2-code", "FedRS-code-0.9", "accuracy_last50_mean", 69.8),
        ("freezefl-2", "e3", "FedAvg", "accuracy_best", 77.92),
    ],
)
def test_printed_numbers_are_the_papers(name: str, column: str, row: str, statistic: str, number: float) -> None:
    assert TABLES[name].published(column, row, statistic) == number


def test_columns_change_the_settings_the_paper_changes() -> None:
    table = load_table("rebafl-1")
    a = resolve(table.cell("fmnist-m20", "FedAvg", rounds=200, seed=7))
    b = resolve(table.cell("cifar10-m50", "ReBaFL", rounds=200, seed=7))
    assert (a["federation"]["clients"], b["federation"]["clients"]) == (20, 50)
    assert (a["federation"]["model"]["name"], a["method"]["lr"]) == ("lenet_f", 0.01)
    assert (b["federation"]["model"]["name"], b["method"]["lr"]) == ("lenet_c", 0.02)
    for x in (a, b):
        assert x["federation"]["partition"]["examples_per_client"] == 1000
        assert (x["method"]["momentum"], x["method"]["weight_decay"]) == (0.5, 5e-4)
        assert x["federation"]["availability"] == {"name": "bernoulli", "p": 0.5}


def test_a_row_changes_the_federation_where_its_method_asks_for_it() -> None:
    table = load_table("seol-kim-1")
    drawn = resolve(table.cell("case1", "FedAvg", rounds=3, seed=7))
    chosen = resolve(table.cell("case1", "Seol-Kim-beta3", rounds=3, seed=7))
    assert drawn["federation"]["availability"]["count"] == 10
    assert chosen["federation"]["availability"] == {"name": "full"}
    assert drawn["federation"]["partition"] == chosen["federation"]["partition"]


def test_rows_run_the_rules_they_are_named_after() -> None:
    """Seol and Kim's rate as printed but where a row is called bounded; FedRS's public code whole."""
    table = load_table("seol-kim-1")
    rates = {
        row: resolve(table.cell(column, row, rounds=3, seed=7))["method"]["lr_rule"]
        for row, spec in table.rows.items()
        for column in spec.published
        if spec.method["name"] == "seol_kim" and spec.method.get("dynamic_batch", True)
    }
    assert len(rates) == 6 and all((rule == "bounded") == ("bounded" in row) for row, rule in rates.items())
    split = resolve(table.cell("case2", "Seol-Kim", rounds=3, seed=7))["federation"]["partition"]
    assert (split["name"], split["alpha"]) == ("dirichlet_client", [0.0] * 9 + [0.2])
    for name, column in (("rebafl-1", "fmnist-m20"), ("rebafl-3", "m200")):
        public = resolve(load_table(name).cell(column, "Scaffold-public-code", rounds=3, seed=7))["method"]
        rule = {k: public[k] for k in ("literal_public_code", "grad_clip", "momentum", "weighting", "option")}
        theirs = {"literal_public_code": True, "grad_clip": 10.0, "momentum": 0.5, "weighting": "uniform"}
        assert rule == theirs | {"option": "II"}  # as in the trajectory scaffold-public-rebafl
    for name in ("fedrs-tfcnn", "fedrs-vgg11"):
        ran = resolve(load_table(name).cell("c10-100-2-code", "FedRS-code-0.5", rounds=3, seed=7))
        rule = {k: ran["method"][k] for k in ("soft", "least_steps", "grad_clip", "weighting")}
        assert rule == {"soft": True, "least_steps": 5, "grad_clip": 100.0, "weighting": "samples"}
        assert ran["federation"]["partition"] == {"name": "balanced_shards", "classes_per_client": 2}


def test_gandalf_and_what_it_is_compared_with_visit_clients_equally_often() -> None:
    table = load_table("gandalf-2")
    found = {
        row: resolve(table.cell("no-faults", row, rounds=15, seed=7))["method"] for row in ("FedAvg", "GANDALF")
    }
    phases = found["GANDALF"]["gan"]["cycles"] + found["GANDALF"]["labeler_rounds"] + 1
    assert found["FedAvg"]["rounds"] == found["GANDALF"]["rounds"] + phases


def test_gandalfs_parts_are_every_combination_at_the_papers_two_mediators() -> None:
    """{relays, average} x {none, real, static, generated by labeller}, crop and flip or not, 20 or 4 clients."""
    table = load_table("gandalf-parts")
    ran = {
        (row, column): resolve(table.cell(column, row, rounds=15, seed=7))
        for row in table.rows
        if row.startswith(("relays", "average"))
        for column in table.columns
    }
    seen = {
        (
            c["method"]["mediators"],
            c["method"]["augmentation"],
            c["method"]["labeler"] if c["method"]["augmentation"] == "gan" else "",
            c["federation"]["dataset"]["augment"],
            c["federation"]["availability"].get("count", 20),
        )
        for c in ran.values()
    }
    added = [("none", ""), ("real", ""), ("static", ""), ("gan", "fedavg"), ("gan", "oracle")]
    assert seen == {
        (m, a, lab, crop, n)
        for m in (2, 20)
        for a, lab in added
        for crop in ("none", "crop_flip")
        for n in (20, 4)
    }
    assert {c["method"]["rounds"] for (_, column), c in ran.items() if column == "all-rounds"} == {15}
    theirs = resolve(table.cell("four", "authors-FedAvg", rounds=15, seed=7))
    assert (theirs["method"]["rounds"], theirs["method"]["weighting"]) == (150, "uniform")
    for row in ("GANDALF", "with-fault-tolerance", "without-fault-tolerance"):
        column = next(iter(load_table("gandalf-2").rows[row].published))
        assert resolve(load_table("gandalf-2").cell(column, row, rounds=1, seed=7))["method"]["mediators"] == 2


def test_the_sweeps_are_the_figures() -> None:
    """ReBaFL's s, E, epsilon and mu and FedRS's alpha by E reach the runs as the papers list them."""
    table, sweep = load_table("rebafl-figures"), load_table("fedrs-sweep")

    def ran(column: str, row: str) -> dict[str, Any]:
        return resolve(table.cell(column, row, rounds=3, seed=7))

    periods = [ran(c, "ReBaFL")["federation"]["availability"]["period"] for c in ("s2", "s5", "s10", "s20")]
    epochs = [ran(c, "ReBaFL")["method"]["local_epochs"] for c in ("e1", "e2", "e5", "e10", "e20")]
    assert (periods, epochs) == ([2, 5, 10, 20], [1, 2, 5, 10, 20])
    settings = [(m["epsilon"], m["mu"]) for r in table.rows_of("settings") if (m := ran("settings", r)["method"])]
    assert settings[:5] == [(1e-4, 0), (1e-3, 0), (1e-2, 0), (0.1, 0), (0.2, 0)]
    assert settings[5:] == [(0.01, 0), (0.01, 0.1), (0.01, 0.5), (0.01, 1), (0.01, 5)]
    assert {ran(c, "FedAvg")["federation"]["availability"]["p"] for c in table.columns if "-m50-" in c} == {
        0.1,
        0.3,
        0.5,
    }
    found = {
        (m["alpha"], m["local_epochs"])
        for c in ("e1", "e2", "e3", "e5")
        for r in sweep.rows
        if (m := resolve(sweep.cell(c, r, rounds=3, seed=7))["method"])
    }
    assert found == {(a, e) for a in (0, 0.1, 0.5, 0.9, 1) for e in (1, 2, 3, 5)}


def test_rounds_and_time_until_an_accuracy_is_reached() -> None:
    told = [{"accuracy": a, "clock": 2.5 * (i + 1)} for i, a in enumerate((0.1, 0.8, 0.6))]
    one = Finished(column="even", row="FedAvg", seed=1, rounds=3, history=told)
    assert (one.value("rounds_to_80"), one.value("time_to_80")) == (2, 5.0)
    assert one.value("rounds_to_81") is one.value("time_to_81") is None
    assert run("FedAvg", 1, 0.9).value("time_to_80") is None  # nobody kept the time


def test_a_plain_number_belongs_to_the_first_statistic(tiny: Path) -> None:
    two = "statistics: [accuracy_final, accuracy_best]\n"
    tiny.write_text(TINY.replace("even: 12.5", "even: {accuracy_best: 3}") + two)
    table = load_table(str(tiny))
    assert table.published("even", "FedAvg", "accuracy_final") == 90
    assert table.published("even", "FedAvg", "accuracy_best") is None
    assert table.published("half", "FedAvg", "accuracy_final") is None
    assert table.published("even", "FedRS", "accuracy_final") is None
    assert table.published("even", "FedRS", "accuracy_best") == 3


def history(*accuracy: float) -> list[dict[str, object]]:
    return [{"accuracy": a, "class_accuracy": [a, a]} for a in accuracy]


def run(row: str, seed: int, *accuracy: float) -> Finished:
    return Finished(column="even", row=row, seed=seed, rounds=3, history=history(*accuracy))


def test_means_deviations_and_differences_by_hand(tiny: Path) -> None:
    runs = [
        run("FedAvg", 1, 0.1, 0.8, 0.6),
        run("FedAvg", 2, 0.1, 0.2, 0.9),
        run("FedRS", 2, 0.7, 0.75, 0.95),
        run("FedRS", 3, 1, 1, 1),
    ]
    [block] = blocks(load_table(str(tiny)), runs)
    assert block.header == ("row", "ours", "ours, last 50 rounds", "published", "difference", "seeds")
    # best 80 and 90; mean of all three rounds 50 and 40; FedRS minus FedAvg at seed 2 alone, 95 - 90
    assert block.rows[0] == ["FedAvg", "85.00 ± 7.07", "45.00 ± 7.07", "90", "-5.00", "1, 2"]
    assert block.rows[1] == ["FedRS minus FedAvg", "5.00", "40.00", "12.5", "-7.50", "2"]
    assert "3 of the paper's 4 rounds" in block.text


def test_what_ran_and_never_came_so_far_is_not_called_not_run(tiny: Path) -> None:
    table = load_table(str(tiny))
    table = replace(table, header=table.header.model_copy(update={"statistics": ("rounds_to_80",)}))
    [block] = blocks(table, [run("FedAvg", 1, 0.1, 0.5, 0.6)])
    assert [line[-1] for line in block.rows] == ["no value", "not run"]


def test_a_statistic_can_look_at_the_first_rounds_only() -> None:
    one = run("FedAvg", 1, 0.1, 0.5, 0.4, 0.9)
    assert one.value("accuracy_best@3") == pytest.approx(50)
    assert one.value("max_drop") == pytest.approx(-10)
    assert one.value("rounds") == 4  # not a percentage
    with pytest.raises(UserError, match="not a number of rounds"):
        one.value("accuracy_best@x")


def test_a_table_runs_prints_differences_and_runs_nothing_twice(tiny: Path) -> None:
    out = tiny.parent / "papers"
    words = (tiny, "--rounds", 2, "--seeds", "7,8", "--workers", 0, "--out", out)
    code, text = call(*words, "--column", "even")
    assert code == 0, text
    metrics = sorted(out.glob("tiny/even/*/seed-*-r2/metrics.jsonl"))
    assert len(metrics) == 4
    best = {
        (p.parts[-3], p.parts[-2][5]): max(
            100 * json.loads(line)["accuracy"] for line in p.read_text().splitlines()
        )
        for p in metrics
    }
    avg = (best["FedAvg", "7"] + best["FedAvg", "8"]) / 2
    gain = (best["FedRS", "7"] + best["FedRS", "8"]) / 2 - avg
    assert f"| 90 | {avg - 90:+.2f} | 7, 8 |" in text
    assert f"| 12.5 | {gain - 12.5:+.2f} | 7, 8 |" in text
    assert "2 of the paper's 4 rounds were run" in text and "Everybody answers." in text
    assert not list(out.glob("tiny/*/*/*/artifacts/*.safetensors"))
    before = {p: os.stat(p).st_mtime_ns for p in metrics}
    assert call(*words, "--column", "even,half", "--rows", "FedAvg")[0] == 0
    assert {p: os.stat(p).st_mtime_ns for p in metrics} == before
    page = (out / "tiny" / "table.md").read_text()  # what was run earlier stays in the page
    assert "even, accuracy_best, 2 rounds" in page and "half, accuracy_best, 2 rounds" in page
    assert f"{gain - 12.5:+.2f}" in page


def test_rows_of_a_column_share_clients_and_examples(tiny: Path) -> None:
    table = load_table(str(tiny))
    reproduce(table, Selection(rounds=2, seeds=(7,), workers=0), tiny.parent)
    used = []
    for row in ("FedAvg", "FedRS"):
        text = (tiny.parent / f"tiny/even/{row}/seed-7-r2/metrics.jsonl").read_text()
        records = [json.loads(line) for line in text.splitlines()]
        used.append([(r["selected"], r["delivered"], r["samples_used"]) for r in records])
    assert used[0] == used[1]


def test_a_table_whose_settings_changed_does_not_show_old_runs(tiny: Path) -> None:
    out, chosen = tiny.parent, Selection(rounds=1, seeds=(7,), columns=("even",), workers=0)
    reproduce(load_table(str(tiny)), chosen, out)
    assert len(collect(load_table(str(tiny)), out / "tiny").runs) == 2
    tiny.write_text(TINY.replace("alpha: 0.5", "alpha: 0.9"))
    found = collect(load_table(str(tiny)), out / "tiny")
    assert [r.row for r in found.runs] == ["FedAvg"] and found.outdated[0].parts[-2] == "FedRS"
    with pytest.raises(UserError, match=r"method\.alpha: 0\.5, the config says 0\.9"):
        reproduce(load_table(str(tiny)), chosen, out)


def test_unknown_names_are_refused_with_the_nearest(tiny: Path) -> None:
    out = ("--out", tiny.parent / "none")
    assert "did you mean 'rebafl-1'?" in refusal("rebafl1", *out)
    assert "did you mean 'even'?" in refusal(tiny, "--column", "evn", *out)
    assert "did you mean 'FedAvg'?" in refusal(tiny, "--rows", "fedavg", *out)
    assert "no file" in refusal(tiny.parent / "absent.yaml", *out)
    assert "none of the rows" in refusal(tiny, "--column", "half", "--rows", "FedRS", *out)
    assert not (tiny.parent / "none").exists()


def test_wrong_numbers_and_folders_are_refused(tiny: Path) -> None:
    assert "--seeds" in refusal(tiny, "--seeds", "7,x")
    assert "--rounds must be >= 1" in refusal(tiny, "--rounds", 0)
    assert "NAME=FOLDER" in refusal(tiny, "--data", "cifar10")
    assert "did you mean 'cifar10'?" in refusal(tiny, "--data", "cifar1=/x")
    assert "--data femnist=FOLDER" in refusal("freezefl-2", "--rounds", 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("published: {even: 90", "published: {evn: 90", "did you mean 'even'?"),
        ("relative_to: FedAvg", "relative_to: FedAv", "did you mean 'FedAvg'?"),
        ("published: {even: 90, half: }", "published: {half: }", "no column (rows.FedAvg)"),
        ("rounds: 4, ", "", "base.method.rounds is missing"),
        ("  FedRS: {", "  Fed/RS: {", "cannot name a folder"),
        ("note: Everybody", "notes: Everybody", "unknown key notes"),
        ("even: 12.5", "even: many", "rows.FedRS: published"),
        ("name: fedrs", "name: fedsr", "did you mean 'fedrs'?"),
    ],
)
def test_a_faulty_file_is_refused(old: str, new: str, expected: str, tiny: Path) -> None:
    assert old in TINY
    tiny.write_text(TINY.replace(old, new))
    assert expected in refusal(tiny, "--out", tiny.parent / "none")


def test_the_list_names_every_table() -> None:
    code, text = call("--list")
    assert code == 0 and all(f"{name}: " in text for name in tables())
