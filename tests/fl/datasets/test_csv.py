"""A table of one's own: what a file and its schema become, and one sentence for whatever is wrong with them."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.fl.data import table_file
from fedaudit.fl.data.dataset import Data, read_data
from fedaudit.fl.datasets.csv import CSV
from fedaudit.fl.runtime.errors import UserError

SCHEMA = """\
label: outcome
owner: patient
identifiers: [record]
columns:
  age: {kind: number, unit: years, step: 1}
  ward: {kind: category, levels: [north, south]}
  dose: {kind: number, missing: true}
"""
HEADER = "record,patient,age,ward,dose,outcome"
ROWS = [
    f"{1000 + i},p{i // 2},{30 + i % 7},{('north', 'south')[i % 2]},{i}.5,{('ill', 'well')[i % 3 == 0]}"
    for i in range(40)
]
ROWS[3] = "1003,p1,33,south,,well"


def load(folder: Path, table: str | bytes | None = None, schema: str = SCHEMA, **config: float) -> Data:
    text = "\n".join([HEADER, *ROWS]) + "\n" if table is None else table
    (folder / "rows.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "rows.yaml").write_text(schema)
    return read_data(
        CSV(CSV.Config(path=str(folder / "rows.csv"), schema=str(folder / "rows.yaml"), **config))  # type: ignore[arg-type]
    )


def test_a_file_becomes_rows_in_raw_units(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert (len(data.train), len(data.test)) == (32, 8)
    assert data.columns is not None and data.columns.names == ("age", "ward", "dose")
    assert data.classes == ("ill", "well") and data.shape == (3,) and data.input_shape == (5,)
    x, y = (np.concatenate([getattr(part, name) for part in (data.train, data.test)]) for name in "xy")
    order = np.argsort(np.where(np.isnan(x[:, 2]), 3.5, x[:, 2]))
    assert x[order][:3].tolist() == [[30, 0, 0.5], [31, 1, 1.5], [32, 0, 2.5]]
    assert np.isnan(x[order][3, 2]) and x[order][3, :2].tolist() == [33, 1]
    assert y[order][:4].tolist() == [1, 0, 0, 1]


def test_rows_of_one_owner_are_held_out_together(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert data.train.owner is not None and data.test.owner is not None
    assert not set(data.train.owner.tolist()) & set(data.test.owner.tolist())
    assert np.bincount(data.test.owner)[np.unique(data.test.owner)].tolist() == [2, 2, 2, 2]


def test_the_scale_and_the_ranges_are_those_of_the_rows_held_out(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert data.columns is not None
    age = data.test.x[:, 0]
    assert (data.columns.mean[0], data.columns.std[0]) == pytest.approx((age.mean(), age.std()))
    assert (data.columns.columns[0].low, data.columns.columns[0].high) == (age.min(), age.max())


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("\ufeff" + "\n".join([HEADER, *ROWS]), SCHEMA),
        ("\r\n".join([HEADER, *ROWS]), SCHEMA),
        ("\n\n".join([HEADER, *ROWS]), SCHEMA),
        ("\n".join([HEADER, *ROWS]).replace(",", ";"), f'{SCHEMA}delimiter: ";"\n'),
        ("\n".join([HEADER, *ROWS]).replace(",", "\t"), f'{SCHEMA}delimiter: "\\t"\n'),
        ("\n".join([HEADER, *ROWS]).replace(",", " , "), SCHEMA),
        ("\n".join([HEADER, *ROWS]).replace("north", '"north"'), SCHEMA),
        ("\n".join([HEADER, *ROWS]).replace(",south,,", ",south,unknown,"), f"{SCHEMA}missing: [unknown]\n"),
    ],
)
def test_files_as_programs_write_them_are_the_same_table(table: str, schema: str, tmp_path: Path) -> None:
    plain, other = load(tmp_path), load(tmp_path, table, schema)
    assert np.array_equal(plain.train.x, other.train.x, equal_nan=True)
    assert plain.train.y.tolist() == other.train.y.tolist()


def labelled(task: str, label: str, entries: list[str]) -> tuple[str, str]:
    names = label.strip("[]").replace(" ", "").split(",")
    rows = [f"{20 + i % 5},{entry}" for i, entry in enumerate(entries)]
    return (
        "\n".join([f"age,{','.join(names)}", *rows]),
        f"task: {task}\nlabel: {label}\ncolumns: {{age: {{kind: number}}}}\n",
    )


def test_a_number_is_predicted_in_deviations_of_the_rows_held_out(tmp_path: Path) -> None:
    data = load(tmp_path, *labelled("regression", "days", [str(i * i) for i in range(40)]))
    assert repr(data.task) == "regression" and data.test.y.dtype == np.float32
    assert (float(data.test.y.mean()), float(data.test.y.std())) == pytest.approx((0, 1), abs=1e-6)
    assert data.train.owner is None


def test_times_and_events_are_survival(tmp_path: Path) -> None:
    data = load(
        tmp_path, *labelled("survival", "[time, event]", [f"{i},{('no', 'yes')[i % 2]}" for i in range(40)])
    )
    y = np.concatenate([data.train.y, data.test.y])
    assert sorted(map(tuple, y.tolist()))[:3] == [(0, 0), (1, 1), (2, 0)] and data.groups == ("not seen", "seen")


def test_several_findings_are_the_columns_of_the_label(tmp_path: Path) -> None:
    data = load(tmp_path, *labelled("several", "[flu, gout]", [f"{i % 2},{i % 3 // 2}" for i in range(40)]))
    assert data.classes == ("flu", "gout") and data.train.y.sum(0).tolist() == [17, 11]


def test_classes_stand_in_the_order_that_is_stated(tmp_path: Path) -> None:
    table, schema = labelled("classify", "grade", [("low", "high")[i % 2] for i in range(40)])
    assert load(tmp_path, table, schema).classes == ("high", "low")
    assert load(tmp_path, table, f"{schema}classes: [low, high]\n").classes == ("low", "high")
    table, schema = labelled("classify", "grade", [("10", "9")[i % 2] for i in range(40)])
    assert load(tmp_path, table, schema).classes == ("9", "10")


def edit(line: int, old: str, new: str) -> str:
    rows = list(ROWS)
    assert old in rows[line - 2]
    rows[line - 2] = rows[line - 2].replace(old, new)
    return "\n".join([HEADER, *rows])


WHOLE = "\n".join([HEADER, *ROWS])


@pytest.mark.parametrize(
    ("table", "schema", "says", "hints"),
    [
        ("", SCHEMA, "is empty", "names the columns"),
        (" \n\n", SCHEMA, "is empty", "names the columns"),
        (HEADER, SCHEMA, "a header and no rows", "each line"),
        ("\n".join(["1,2,3,4,5,6"] * 30), SCHEMA, "no header", "first line"),
        (WHOLE.replace(",", ";"), SCHEMA, "has one column, 'record;patient", 'delimiter: ";"'),
        (WHOLE.replace(",", "\t"), SCHEMA, "has one column", r'delimiter: "\t"'),
        (WHOLE.replace("age,", "ward,", 1), SCHEMA, "columns 3 and 4 are both called 'ward'", "name of its own"),
        (WHOLE.replace("record,", ",", 1), SCHEMA, "column 1 has no name", "index=False"),
        (edit(7, ",p2", ",p2,9"), SCHEMA, "line 7: 7 entries, and the header has 6", "double quotes"),
        (edit(7, "35", "old"), SCHEMA, "line 7: age is 'old', expected a number", "category"),
        (edit(7, "35", "35,5"), SCHEMA, "line 7: 7 entries", "double quotes"),
        (edit(7, "35", '"35,5"'), SCHEMA, "line 7: age is '35,5', expected a number", "write 35.5"),
        (edit(7, "35", "inf"), SCHEMA, "line 7: age is 'inf', expected a number", ""),
        (edit(7, "35", "1e999"), SCHEMA, "line 7: age is '1e999', expected a number", ""),
        (edit(7, "35", ""), SCHEMA, "line 7: age is missing", "missing: true"),
        (edit(7, "south", "nrth"), SCHEMA, "line 7: ward is 'nrth', which is none of its levels", "'north'"),
        (edit(7, "ill", "NaN"), SCHEMA, "line 7: the label outcome is missing", "leave the row out"),
        (edit(7, "p2", ""), SCHEMA, "line 7: nobody owns the row", "leave the row out"),
        (edit(7, "35", '"35'), SCHEMA, "line 41: unexpected end of data", "written twice"),
        (WHOLE.encode().replace(b"north", b"n\xf6rd"), SCHEMA, "not text in UTF-8: byte", "CSV UTF-8"),
        (WHOLE.encode("utf-16"), SCHEMA, "not text in UTF-8: byte 0 is 0xff", "CSV UTF-8"),
        ("\n".join([HEADER, *ROWS[:9]]), SCHEMA, "has 9 rows, expected 20", "more rows"),
        (WHOLE, SCHEMA.replace("identifiers: [record]\n", ""), "column 'record' of the table has no", "left_out"),
        (WHOLE, SCHEMA.replace("age:", "agge:"), "columns names a column 'agge'", "did you mean 'age'"),
        (WHOLE, SCHEMA.replace("label: outcome", "label: ward"), "'ward' stands in columns and in label", ""),
        (WHOLE, SCHEMA.replace("kind: number, unit", "knd: number, unit"), "unknown key columns.age.knd", "kind"),
        (WHOLE, "label: outcome\n", "columns is missing", ""),
        (WHOLE, "- a\n", "holds no keys", "fedaudit init"),
        (WHOLE, SCHEMA.replace("step: 1", "low: 31, high: 40"), "age is '30', and the schema says 31 to 40", ""),
        (WHOLE, f"{SCHEMA}classes: [well, il]\n", "line 3: the label outcome is 'ill'", "'il'"),
        (WHOLE, f"{SCHEMA}task: clasify\n", "clasify", "classify"),
        (WHOLE, f"{SCHEMA}task: survival\n", "1 columns are the label", "time, event"),
        (WHOLE.replace(",ill", ",well"), SCHEMA, "outcome is 'well' in all rows", "another label"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_its_place(
    table: str | bytes, schema: str, says: str, hints: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, table, schema)
    assert says in caught.value.sentence and hints in caught.value.hint
    assert str(tmp_path) in caught.value.sentence or "clasify" in says


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(SCHEMA)
    for path, says in ((tmp_path / "no.csv", "is not there"), (tmp_path, "is a folder")):
        with pytest.raises(UserError, match=says):
            CSV(CSV.Config(path=str(path), schema=str(tmp_path / "rows.yaml"))).load()
    (tmp_path / "rows.csv").write_text(WHOLE)
    with pytest.raises(UserError, match=r"no schema .*none\.yaml"):
        CSV(CSV.Config(path=str(tmp_path / "rows.csv"), schema=str(tmp_path / "none.yaml"))).load()
    with pytest.raises(UserError, match=r"no schema .*rows.schema.yaml"):
        CSV(CSV.Config(path=str(tmp_path / "rows.csv"))).load()
    (tmp_path / "rows.schema.yaml").write_text(SCHEMA)
    assert CSV(CSV.Config(path=str(tmp_path / "rows.csv"))).load().shape == (3,)


@pytest.mark.parametrize(
    ("limit", "says"), [("MOST_BYTES", "MB are read at most"), ("MOST_CELLS", "more than 100 entries")]
)
def test_a_huge_file_is_refused_before_it_fills_the_memory(
    limit: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, limit, 100)
    with pytest.raises(UserError, match=says):
        load(tmp_path)


def test_a_level_of_clients_rows_alone_is_no_level_until_it_is_stated(tmp_path: Path) -> None:
    schema = SCHEMA.replace(", levels: [north, south]", "")
    assert load(tmp_path, schema=schema).columns == load(tmp_path).columns
    data = load(tmp_path)
    assert data.train.owner is not None
    of_clients = int(data.train.owner[0])  # the rows of p0 are the first two, of p1 the next, and so on by name
    name = sorted({f"p{i // 2}" for i in range(40)})[of_clients]
    line = next(i for i, row in enumerate(ROWS) if f",{name}," in row) + 2
    table = edit(line, "north", "west")
    with pytest.raises(UserError, match=f"line {line}: ward 'west' stands in clients' rows alone"):
        load(tmp_path, table, schema)
    assert load(tmp_path, table, schema.replace("kind: category", "kind: category, levels: [north, south, west]"))


def test_a_column_without_two_equal_entries_is_an_identifier_unless_it_is_declared(tmp_path: Path) -> None:
    as_column = SCHEMA.replace("identifiers: [record]\n", "") + "  record: {kind: number}\n"
    with pytest.raises(UserError, match="no two rows have the same record, as of an identifier") as caught:
        load(tmp_path, schema=as_column)
    assert "identifiers: [record]" in caught.value.hint
    data = load(tmp_path, schema=f"distinct: [record]\n{as_column}")
    assert data.columns is not None and "record" in data.columns.names
    assert load(tmp_path).columns is not None  # dose is a number with decimals, of which all are different
