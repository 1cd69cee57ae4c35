"""Cells of the matrix: colour, frame and words say the same, and every cell's folder is named."""

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.reports.robustness import Breakdown, MatrixCell, Robustness
from fedaudit.reports.section import Cell, Table
from fedaudit.reports.sections.robustness import _attacks, _breakdown, _rest


def cell(rule: str, title: str, drop: float, **more: object) -> MatrixCell:
    found = Evidence(
        measure="accuracy_drop", value=drop, unit="fraction", trials=100, interval=(drop - 0.01, drop + 0.01)
    )
    known = {
        "setting": "fedavg-iid",
        "family": rule,
        "assumed": None,
        "adversary": title,
        "malicious": 4,
        "accuracy": 0.8 - drop,
        "clean": 0.8,
        "by_seed": [(0.8 - drop, 0.8)],
        "folders": [f"matrix/{rule}/{title}/seed-7"],
    }
    return MatrixCell.model_validate({"rule": rule, "title": title, "evidence": [found], **known, **more})


CELLS = [
    cell("mean", "flip", 0.03, severity="Medium"),
    cell("mean", "adaptive", 0.66, severity="Critical"),
    cell("median", "flip", 0.019),
    cell("median", "adaptive", -0.01),
]
MATRIX = Robustness(clients=20, chance=0.1, seeds=[7], cells=CELLS)


def shown(cells: list[MatrixCell]) -> list[list[str | Cell]]:
    [table] = [b for b in _attacks("fedavg-iid", cells, MATRIX) if isinstance(b, Table)]
    return [list(row) for row in table.rows]


def test_darker_cells_lost_more_and_the_worst_of_a_rule_is_framed_and_marked() -> None:
    (_, *flip), (_, *adaptive) = shown(CELLS)
    assert flip == [Cell(text="3.0 (2.0 to 4.0) medium", tint=1), Cell(text="\u25b6 1.9 (0.9 to 2.9)", ring=True)]
    assert adaptive == [
        Cell(text="\u25b6 66.0 (65.0 to 67.0) critical", tint=5, ring=True),
        Cell(text="-1.0 (-2.0 to 0.0)"),
    ]


def test_the_fewest_that_break_a_rule_are_a_range_over_seeds_from_the_fewest_of_all() -> None:
    ranges: dict[str, list[int | None]] = {
        "2": [2, 2],
        "1 to 3": [3, 1, 2],
        "none of these": [None],
        "2 to none of these": [None, 2],
        "1 to none of these": [3, None, 1],
    }
    for words, least in ranges.items():
        found = Breakdown(setting="fedavg-iid", family="median", tried=[1, 2, 3], least=least)
        table = _breakdown(Robustness(clients=9, chance=0.1, seeds=[7], breakdown=[found]))
        assert isinstance(table, Table) and table.rows[0][-1] == words


def test_success_of_a_backdoor_is_shaded_by_what_is_beyond_its_control() -> None:
    asr = Evidence(
        measure="asr",
        value=0.15,
        unit="fraction",
        trials=100,
        interval=(0.1, 0.2),
        baselines=(Baseline(name="clean model, same trigger", value=0.14),),
    )
    [[_, found]] = shown([cell("mean", "backdoor", 0.0, evidence=[asr])])
    assert found == Cell(text="15.0 (10.0 to 20.0); control 14.0")


def test_the_folder_of_every_cell_is_named() -> None:
    text = str(_rest(MATRIX))
    assert all(c.folders[0] in text for c in CELLS)


def test_where_no_attack_lowered_accuracy_none_is_framed() -> None:
    rows = shown([cell("mean", "flip", -0.02), cell("mean", "adaptive", -0.01)])
    assert [row[1] for row in rows] == [Cell(text="-2.0 (-3.0 to -1.0)"), Cell(text="-1.0 (-2.0 to 0.0)")]
