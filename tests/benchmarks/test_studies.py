"""Studies of attacks and rules on data sorted by label: their partition, and a hundred steps of each."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paper_tables.main import Selection, reproduce
from benchmarks.paper_tables.report import collect
from benchmarks.paper_tables.table import load_table
from fedaudit.audit.settings.merge import merge


def test_studies_of_attacks_sort_data_by_label_over_the_honest_and_attack_with_the_rest() -> None:
    table = load_table("bucketing-3")
    cell = table.cell(
        "label-flip", "krum-s2", rounds=600, seed=7, data={"mnist": {"path": "x"}}
    ).require_simulated()
    assert cell.federation.partition.settings == {"gamma": 0, "mixed": 5}
    assert cell.adversary is not None and cell.adversary.name == "label_flip"
    assert cell.adversary.settings["clients"] == [20, 21, 22, 23, 24]
    assert cell.aggregator.settings == {"s": 2, "rule": {"name": "krum", "f": 5}}
    heat = load_table("byzfl").cell("similarity-0.33-f3", "adaptive", rounds=800, seed=7).require_simulated()
    assert heat.federation.clients == 13 and heat.adversary is not None
    assert (heat.adversary.name, heat.adversary.settings) == ("adaptive", {"clients": [10, 11, 12]})
    assert heat.aggregator.settings["rule"] == {"name": "nnm", "f": 3, "rule": "trimmed_mean"}


FASHION = Path("/usr/share/datasets/fashion-mnist")  # where Debian's dataset-fashion-mnist puts it


@pytest.mark.nightly
@pytest.mark.skipif(not FASHION.is_dir(), reason="Fashion-MNIST is not installed")
@pytest.mark.parametrize(
    ("name", "column", "row"),
    [("byzfl", "similarity-1-f1", "sign_flip"), ("bucketing-3", "label-flip", "median")],
)
def test_a_hundred_steps_of_a_study_on_fashion_mnist(name: str, column: str, row: str, tmp_path: Path) -> None:
    table = load_table(name)
    if name == "bucketing-3":  # its own network takes minutes
        base = merge(table.header.base, {"federation": {"model": "mlp"}})
        table = replace(table, header=table.header.model_copy(update={"base": base}))
    data = {"mnist": {"path": str(FASHION)}}
    chosen = Selection(rounds=100, seeds=(7,), columns=(column,), rows=(row,), data=data, workers=0)
    page = reproduce(table, chosen, tmp_path)
    [run] = collect(table, page.parent).runs
    # more than one class for all: the median under label flips has 15.9 by then, and 35.6 in the study at the end
    assert len(run.history) == 100 and (run.value("accuracy_final") or 0) > 12
    assert f"| {row} |" in page.read_text()
