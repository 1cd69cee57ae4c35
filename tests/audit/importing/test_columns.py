"""A federation of tables elsewhere, whose operator states what its columns are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.subject import ExampleLayout
from fedaudit.audit.verdict.disclosure import HIDDEN
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.models.mlp import MLP
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.reports.result import AuditResult
from tests.audit.importing.inboxes import record_truth, write_message

COLUMNS = {
    "age": {"kind": "number", "unit": "years", "step": 1, "low": 18, "high": 98},
    "bmi": {"kind": "number", "step": 0.1},
    "pressure": {"kind": "number", "unit": "mmHg", "step": 1, "missing": True},
    "ward": {"kind": "category", "levels": ["surgery", "cardiology", "oncology"]},
    "stay": {"kind": "number", "unit": "days", "step": 1},
}
MEAN, STD = [52.0, 26.0, 130.0, 0.0, 9.0], [19.0, 4.0, 18.0, 1.0, 6.0]
WIDTH = 8  # four numbers, three levels, a flag
MISSING = {"missing": True}
SIZES = (30, 31, 1)


def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows in raw units, some without a pressure."""
    x = np.stack(
        [
            rng.integers(18, 99, n),
            np.round(rng.normal(26, 4, n), 1),
            np.where(rng.random(n) < 0.2, np.nan, rng.integers(90, 200, n)),
            rng.integers(0, 3, n),
            rng.integers(0, 40, n),
        ],
        1,
    ).astype(np.float64)
    return x, (x[:, 0] > 55).astype(np.int64)


def write(folder: Path) -> dict[str, Any]:
    """One round of one epoch, of three clients of whom the last has one row; and what is stated."""
    rng = np.random.default_rng(4)
    parts, own = [draw(n, rng) for n in SIZES], draw(60, rng)
    net = initialise(lambda: MLP((WIDTH,), 2, MLP.Config(hidden=(32,))), Streams(0))
    examples = {"classes": ["home", "ward"], "columns": COLUMNS, "shape": [5], "mean": MEAN, "std": STD}
    table = ExampleLayout(**examples).table
    assert table is not None
    start = state_of(net)
    sent = {n: v.numpy() for n, v in start.items()}
    write_message(folder / "inbox", "down", 0, "downlink", "server", ["client"], {"global_model": sent})
    for k, (x, y) in enumerate(parts):
        net.load_state_dict(start)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in torch.randperm(len(y), generator=torch.Generator().manual_seed(k)).split(10):
            optimiser.zero_grad()
            torch.autograd.backward(
                net.loss(torch.from_numpy(table.model_input(x))[batch], torch.from_numpy(y)[batch])
            )
            optimiser.step()
        kinds = {
            "local_model": {n: v.numpy() for n, v in state_of(net).items()},
            "num_examples": {"count": np.int64(len(y))},
        }
        write_message(folder / "inbox", f"{k}", 0, "uplink", f"client/{k}", ["server"], kinds)
    record_truth(folder, parts, own)
    return {
        "title": "Three hospitals",
        "examples": examples,
        "model": {"name": "mlp", "hidden": [32]},
        "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1, "batch_size": 10, "lr": 0.1},
    }


def take(folder: Path, subject: Any, **settings: Any) -> tuple[RunDir, Config, Any]:
    given = {"subject": subject, "attacks": ["analytic_rows"], "workers": 0} | settings
    config = validate(Config, given, "test").set_origin(Origin(trust=True))
    run = RunDir.create(folder / "run")
    sources = ImportSources(inbox=folder / "inbox", subject=folder / "x", truth=folder / "truth")
    return run, config, bring(run.path, config, sources, lambda *_: None)


def report(folder: Path, **settings: Any) -> tuple[AuditResult, str]:
    """What an audit of the federation came to, and its report."""
    run, config, found = take(folder, write(folder), **settings)
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return read_result(run.path), (run.path / "report.html").read_text()


def test_a_row_that_an_update_gives_away_is_shown_by_the_names_and_units_of_its_columns(tmp_path: Path) -> None:
    result, page = report(tmp_path, report=["html"], show="full")
    (row, *_), _ = np.load(tmp_path / "truth" / "client-2.npz").values()
    [shown] = [pair for tables in result.rows for pair in tables.pairs if pair.name.startswith("client 2")][:1]
    assert shown.columns == list(COLUMNS)
    assert shown.original == shown.claimed
    assert shown.apart == [0.0] * 5
    assert shown.original[0] == f"{row[0]:.0f} years"
    assert shown.original[3] == ("surgery", "cardiology", "oncology")[int(row[3])]
    assert f"{row[0]:.0f} years" in page
    assert "pressure" in page


def test_values_of_imported_rows_are_withheld_unless_the_config_says_otherwise(tmp_path: Path) -> None:
    result, page = report(tmp_path, report=["html"])
    assert {value for tables in result.rows for pair in tables.pairs for value in pair.original} == {HIDDEN}
    assert "pressure" in page
    (row, *_), _ = np.load(tmp_path / "truth" / "client-2.npz").values()
    assert f"{row[0]:.0f} years" not in page


def test_a_network_is_given_rows_as_columns_state_them(tmp_path: Path) -> None:
    run, config, _ = take(tmp_path, write(tmp_path))
    data = RecordedCase(config, run.artifacts, *run.find_truth()).data
    assert data.columns is not None
    row = np.array([[71, 30.0, np.nan, 2, 3]])
    assert data.columns.model_input(row)[0] == pytest.approx([1, 1, 0, 1, 0, 0, 1, -1])
    assert (data.columns.columns[0].low, data.columns.columns[0].high) == (18, 98)  # stated
    own = np.load(tmp_path / "truth" / "own.npz")["x"]
    assert (data.columns.columns[4].low, data.columns.columns[4].high) == (own[:, 4].min(), own[:, 4].max())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shape": [4]}, r"columns has 5 names, and shape is \[4\]"),
        ({"columns": {**COLUMNS, "age": {"kind": "date"}}}, "subject.examples.columns.age.kind"),
        ({"columns": {**COLUMNS, "ward": {"kind": "category"}}}, "column 'ward' is a category, and its levels"),
        (
            {"columns": {**COLUMNS, "ward": {"kind": "category", "levels": ["a", "b"]}, "bmi": MISSING}},
            "places in column 'ward' that are none of its 2 levels",
        ),
        (
            {"columns": {**COLUMNS, "pressure": {"kind": "number"}, "bmi": MISSING}},
            "rows are without 'pressure' in row",
        ),
        ({"columns": {**COLUMNS, "bmi": MISSING}}, r"\[32, 8\], and subject.model: \[32, 9\] there"),
    ],
)
def test_columns_that_are_not_those_of_the_truth_are_refused(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    subject = write(tmp_path)
    subject["examples"] |= change
    with pytest.raises(UserError, match=says):
        take(tmp_path, subject)


@pytest.mark.parametrize("as_input", [False, True], ids=["as they are", "as the network is given them"])
def test_rows_that_an_upload_has_in_it_are_shown_column_by_column(as_input: bool, tmp_path: Path) -> None:
    subject = write(tmp_path)
    x = np.load(tmp_path / "truth" / "client-0.npz")["x"]
    table = ExampleLayout(**subject["examples"]).table
    assert table is not None
    sent = {"example:cache": {"buffer": table.model_input(x) if as_input else x.astype(np.float32)}}
    write_message(tmp_path / "inbox", "leak", 0, "uplink", "client/0", ["server"], sent)
    run, config, _ = take(tmp_path, subject, report=["html"], show="full")
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    [rows] = [r for r in read_result(run.path).rows if r.finding.startswith("raw-example:")]
    assert [pair.name for pair in rows.pairs] == ["client 0"] * 3
    for pair, row in zip(rows.pairs, x, strict=False):
        assert pair.columns == list(COLUMNS)
        assert pair.original == pair.claimed
        assert pair.claimed[0] == f"{row[0]:.0f} years"
        assert pair.apart == pytest.approx([0] * 5, abs=1e-5)
    assert "Rows that stand in what clients sent" in (run.path / "report.html").read_text()
